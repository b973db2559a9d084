"""Weights come in whole or not at all, and go out as they came."""

import os

import pytest

from tests.support import bert_release as cases
from tests.support import commands
from tests.support.fake_hub import COMMIT, NAME

pytest_plugins = ["tests.support.fake_hub"]


def command(*words, **options):
    return commands.run("-m", "pretrain.convert", *words, **options)


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


@pytest.mark.slow
def test_weights_come_from_the_hub_and_go_there_with_a_card(hub, tmp_path):
    cases.golden(release := tmp_path / "bert")
    hub.files = {path.name: path.read_bytes() for path in release.iterdir()}
    hub.files["README.md"] = b"---\nlicense: mit\n---\n"
    environment = os.environ | {"HF_HOME": str(tmp_path / "home")}
    words = [f"--source=hub:{NAME}", f"--workdir={tmp_path}/run"]
    done = command(*words, environment=environment)
    assert done.returncode == 0, done.stderr
    words = [f"--workdir={tmp_path}/run", f"--out={tmp_path}/out", f"--push={NAME}"]
    done = command(*words, environment=environment)
    assert done.stdout.splitlines()[-1] == f"pushed to {hub.address}/{NAME}", done.stderr
    card = hub.pushed["README.md"].decode()
    assert card.startswith(f"---\nlicense: mit\nlibrary_name: transformers\nbase_model: {NAME}\n")
    assert f"Began with the weights of `{NAME}@{COMMIT}` (bert, npz)." in card
    assert hub.pushed["model.safetensors"] == (tmp_path / "out/model.safetensors").read_bytes()
