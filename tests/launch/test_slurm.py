"""launch/slurm.sh against a Slurm played on this machine, and against what JAX reads of it."""

import os
import pathlib
import shlex
import subprocess
import sys

import pytest

from tests.support import fake_clouds

# The step of a job: each task is run as Slurm would, with what JAX recognises it by.
SRUN = """\
import subprocess
cut = next(n for n, word in enumerate(words) if n and not word.startswith("--"))
told = {"SLURM_JOB_ID": "7", "SLURM_STEP_NODELIST": "localhost", "SLURM_NTASKS": "1"}
told |= {"SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_STEP_NUM_NODES": "1"}
sys.exit(subprocess.run(words[cut:], env=os.environ | told).returncode)
"""
DEVICES = """
import jax
jax.distributed.initialize()
print("devices", jax.config.values["jax_cuda_visible_devices"], "of", jax.process_count())
"""


@pytest.fixture
def slurm(tmp_path):
    fake_clouds.needs_git()
    played = fake_clouds.Played(tmp_path)
    played.stub("sbatch")
    played.stub("scontrol")
    played.stub("srun", SRUN)
    venv = tmp_path / "venv" / "bin"
    venv.mkdir(parents=True)
    os.symlink(played.bin / "python3", venv / "python")
    return played


def inside(slurm, *words, program="true", **more):
    venv = str(slurm.folder / "venv")
    options = ("--inside", "--venv", venv, *words, "--", "sh", "-c", program)
    return slurm.run("slurm.sh", *options, SLURM_JOB_ID="7", **more)


def test_a_job_is_submitted_that_runs_this_script_again(slurm):
    words = ["python", "-c", "import sys; print(sys.argv)", "a b", "it's"]
    options = ["--nodes", "2", "--gpus=4", "--partition", "p", "--flags", "--mem=0 --exclusive"]
    done = slurm.run("slurm.sh", "--name", "bert", *options, "--", *words)
    assert done.returncode == 0, done.stderr
    (call,) = slurm.calls("sbatch")
    flags = {"--job-name=bert", "--nodes=2", "--gpus-per-node=4", "--ntasks-per-node=4", "--mem=0"}
    flags |= {"--partition=p", "--exclusive", "--requeue", "--signal=TERM@300"}
    flags |= {"--open-mode=append", f"--chdir={slurm.repository}"}
    assert flags <= {*call["words"]}
    wrapped = next(word[7:] for word in call["words"] if word.startswith("--wrap="))
    slurm.executable("job", f"#!/bin/sh\n{wrapped}\n")
    os.symlink(slurm.folder / "venv", slurm.repository / ".venv")
    (slurm.repository / "launch" / "slurm.sh").rename(slurm.repository / "launch" / "real.sh")
    slurm.executable("../repo/launch/slurm.sh", '#!/bin/sh\nprintf "%s\\n" "$@"\n')
    said = slurm.run("../../bin/job").stdout.splitlines()
    assert said[said.index("--") + 1 :] == words


LINES = [
    ["python", "-m", "pretrain.main", "--workdir=runs/a", "--config.corpus.source=it's here"],
    ["python", "-c", "print('$HOME \\\\ \"x\"')", "a  b", ""],
]


@pytest.mark.parametrize("piped", [False, True])
def test_an_array_has_a_task_for_each_line(slurm, piped):
    text = "\n# of a sweep\n" + "\n".join(map(shlex.join, LINES))
    (slurm.folder / "sweep.txt").write_text(text)
    file = "-" if piped else str(slurm.folder / "sweep.txt")
    words = ["slurm.sh", "--name", "s", "--gpus=1", "--at-once=4", "--array", file]
    done = subprocess.run(
        [slurm.repository / "launch" / words[0], *words[1:]],
        cwd=slurm.repository,
        env=slurm.environment(),
        input=text,
        text=True,
        capture_output=True,
    )
    assert done.returncode == 0, done.stderr
    (call,) = slurm.calls("sbatch")
    assert {"--array=0-1%4", "--job-name=s", "--requeue"} <= {*call["words"]}
    wrapped = next(word[7:] for word in call["words"] if word.startswith("--wrap="))
    slurm.executable("job", f"#!/bin/sh\n{wrapped}\n")
    slurm.executable("../repo/launch/slurm.sh", '#!/bin/sh\nprintf "%s\\0" "$@"\n')
    for n, line in enumerate(LINES):
        said = slurm.run("../../bin/job", SLURM_ARRAY_TASK_ID=f"{n}").stdout.split("\0")[:-1]
        assert said[0] == "--inside"
        assert said[said.index("--") + 1 :] == line


@pytest.mark.parametrize(
    ("text", "words", "said"),
    [
        ("", [], "there is no program in it"),
        ("python 'x", [], "this is no program: python 'x"),
        ("x", ["--", "python"], "--array has the programs"),
        ("python -m pretrain.main --workdir=gs://b/r", [], "gs://b/r is an address"),
        (None, [], "there is no such file"),
    ],
)
def test_an_array_that_is_none_is_refused(slurm, text, words, said):
    path = slurm.folder / "sweep.txt"
    if text is not None:
        path.write_text(f"python -m x\n{text}\n" if "python" in text else text)
    done = slurm.run("slurm.sh", "--array", str(path), "--dry-run", *words)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert said in line


@pytest.mark.parametrize(
    ("options", "tasks"),
    [
        (["--per", "gpu", "--gpus", "8"], 8),
        (["--per", "node", "--gpus", "8"], 1),
        (["--gpus", "0"], 1),
    ],
)
def test_there_is_a_task_per_gpu_or_per_node(slurm, options, tasks):
    slurm.run("slurm.sh", *options, "--", "true")
    (call,) = slurm.calls("sbatch")
    assert f"--ntasks-per-node={tasks}" in call["words"]
    assert ("--gpus-per-node=8" in call["words"]) == ("8" in options)


@pytest.mark.slow
@pytest.mark.parametrize(("per", "seen"), [("node", "0,1,2"), ("gpu", "0")])
def test_jax_takes_its_nodes_gpus_or_its_tasks(slurm, per, seen):
    program = f"{sys.executable} -c {shlex.quote(DEVICES)}"
    done = inside(slurm, "--per", per, "--gpus", "3", program=program)
    assert f"devices {seen} of 1" in done.stdout, done.stderr
    (call,) = slurm.calls("srun")
    assert "--gpu-bind=none" in call["words"]


def test_the_first_failed_task_ends_the_job_with_its_code(slurm):
    done = inside(slurm, program="exit 9")
    assert done.returncode == 9
    (call,) = slurm.calls("srun")
    assert {"--label", "--kill-on-bad-exit=1"} <= {*call["words"]}
    assert not slurm.calls("scontrol")


def test_a_stopped_program_goes_back_into_the_queue(slurm):
    assert inside(slurm, program="exit 75").returncode == 0
    (call,) = slurm.calls("scontrol")
    assert call["words"] == ["scontrol", "requeue", "7"]


def test_a_finished_program_does_not(slurm):
    assert inside(slurm, program="exit 0").returncode == 0
    assert not slurm.calls("scontrol")


def test_a_job_that_was_cancelled_stays_so(slurm):
    go = slurm.folder / "go"
    program = f"while ! test -e {go}; do sleep 0.01; done; exit 75"
    options = ("--inside", "--venv", str(slurm.folder / "venv"), "--", "sh", "-c", program)
    process = slurm.start("slurm.sh", *options, SLURM_JOB_ID="7")
    fake_clouds.wait_for(lambda: slurm.calls("srun"), process)
    process.terminate()
    go.touch()
    _, err = process.communicate()
    assert process.returncode == 75, err
    assert not slurm.calls("scontrol")


def test_restarts_are_limited(slurm):
    stopped = "exit 75"
    done = inside(slurm, "--restarts", "2", program=stopped, SLURM_RESTART_COUNT="2")
    assert done.returncode == 2
    assert "gave up after 2 restarts" in done.stderr
    assert not slurm.calls("scontrol")


def test_a_commit_runs_in_a_copy_that_shares_data(slurm):
    (slurm.repository / "program.py").write_text("changed")
    for _ in range(2):
        slurm.run("slurm.sh", "--commit", "HEAD", "--", "true")
    first, second = slurm.calls("sbatch")
    assert first["words"] == second["words"]
    folder = next(word[8:] for word in first["words"] if word.startswith("--chdir="))
    assert pathlib.Path(folder, "program.py").read_text() == fake_clouds.PROGRAM
    for name in ("data", "runs"):
        assert os.path.samefile(f"{folder}/{name}", slurm.repository / name)
