"""Weights come in whole or not at all, and go out as they came."""

from tests.support import bert_release as cases
from tests.support import commands


def command(*words):
    return commands.run("-m", "pretrain.convert", *words)


def test_the_command_imports_and_exports(tmp_path):
    cases.golden(release := tmp_path / "bert")
    done = command(f"--source={release}", f"--workdir={tmp_path}/run")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1].endswith("0 are left out, 0 unaccounted for")
    done = command(f"--workdir={tmp_path}/run", f"--out={tmp_path}/out", "--dtype=bfloat16")
    assert "numbers, bfloat16, in " in done.stdout
    assert (tmp_path / "out" / "model.safetensors").exists()
    done = command(f"--workdir={tmp_path}/run", f"--out={tmp_path}/out")
    assert done.returncode == 1
    assert done.stderr.startswith("error: ")
    assert "is there already" in done.stderr
