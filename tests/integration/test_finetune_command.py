"""`python -m finetune.main`: killed, started again, and in two processes, it is the same job."""

import json
import signal
import sys

import pytest

from pretrain.checkpoint import verification
from pretrain.training.reports import metrics_file
from tests.support import tiny_runs as toys
from tests.support.tiny_models import run

pytest_plugins = ["tests.support.tiny_runs"]
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]
__all__ = ["run"]

STEPS = 12


@pytest.fixture
def command(run, tmp_path):
    """() -> the words of a job in a folder of this name."""
    rows = [f"{i % 2} {'ab ' * (i % 2)}cd ef gh ij {'kl ' * (i % 5)}mn" for i in range(37)]
    (tmp_path / "rows").write_text("\n".join(rows) + "\n")
    flags = {
        "init": run("mlm").workdir,
        "data.train": tmp_path / "rows",
        "data.dev": tmp_path / "rows",
        "data.test": "",
        "batches.B": 8,
        "batches.L": 24,
        "batches.eval_B": 8,
        "optim.lr": 1e-3,
        "optim.steps": STEPS,
        "train.log_every": 1,
        "train.eval_every": 4,
        "train.save_every": 2,
    }

    def command(name):
        job = [sys.executable, "-m", "finetune.main", "--config=configs/finetune/sst2.py"]
        job += [f"--config.{field}={value}" for field, value in flags.items()]
        return [*job, f"--workdir={tmp_path / name}"]

    return command


def finished(words, toy, devices=1) -> str:
    process = toy.begin(words, devices)
    out, err = process.communicate()
    assert process.returncode == 0, err
    return out


def evaluations(workdir) -> dict[int, dict[str, float]]:
    """By step."""
    lines = metrics_file.read_lines(workdir / "metrics.jsonl")
    found = {x["step"]: {k: v for k, v in x.items() if "/" in k} for x in lines}
    return {step: values for step, values in found.items() if values}


def learned(workdir):
    """The digests of what the last checkpoint holds, and where it was; without how long it took."""
    record = verification.read_record(workdir / "checkpoints" / str(STEPS))
    logging = record["position"]["hooks"]["logging"]
    assert set(logging.pop("time")) == {"began", "productive"}
    assert logging["totals"].pop("seconds") > 0
    return record


@pytest.fixture
def straight(command, toy, tmp_path):
    first, *_, last = finished(command("straight"), toy).splitlines()
    assert first == f"Finished at step {STEPS} of {STEPS}."
    assert f"python -m finetune.predict --workdir={tmp_path / 'straight'}" in last
    predicted = (tmp_path / "straight" / "predictions" / "dev.jsonl").read_text().splitlines()
    rows = [int(line.split()[0]) for line in (tmp_path / "rows").read_text().splitlines()]
    told = [int(json.loads(line)["label"]) for line in predicted]
    hits = [one == other for one, other in zip(told, rows, strict=True)]
    best = max(x["dev/accuracy"] for x in evaluations(tmp_path / "straight").values())
    assert sum(hits) / len(rows) == pytest.approx(best)
    return tmp_path / "straight"


@pytest.mark.parametrize("sign", [signal.SIGKILL, signal.SIGTERM])
def test_a_job_that_was_ended_goes_on_as_if_it_had_not_been(command, toy, tmp_path, straight, sign):
    process = toy.begin(command("ended"), 1)
    toys.wait_for((tmp_path / "ended" / "checkpoints" / "2").exists, process)
    process.send_signal(sign)
    process.communicate()
    assert process.returncode == (75 if sign == signal.SIGTERM else -sign)
    finished(command("ended"), toy)
    assert evaluations(tmp_path / "ended") == evaluations(straight)
    assert learned(tmp_path / "ended") == learned(straight)


def test_two_processes_learn_and_score_what_one_does(command, toy, tmp_path, straight):
    launch = [sys.executable, "-m", "launch.local", "-n", "2", "--"]
    finished([*launch, *command("two")], toy, devices=2)
    assert (tmp_path / "two" / "predictions" / "dev.jsonl").exists()
    one, two = evaluations(straight), evaluations(tmp_path / "two")
    assert list(one) == list(two)
    for step, values in one.items():
        assert two[step] == pytest.approx(values, rel=1e-3)


@pytest.fixture
def several(tmp_path):
    """(folder) -> the words of a job of two tasks, whose steps are of one or the other."""
    trees = [f"({n % 5} (2 {'good' if n % 5 > 2 else 'bad'}) (2 film))" for n in range(37)]
    (tmp_path / "trees").write_text("\n".join(trees) + "\n")
    (tmp_path / "vectors.txt").write_text("good 0.5 -1.25 0.25\na 0.25 1.5 0.5\n")
    flags = {
        **{
            f"tasks.{task}.data.{split}": tmp_path / "trees"
            for task in ("sst1", "sst2")
            for split in ("train", "dev", "test")
        },
        "vectors.path": tmp_path / "vectors.txt",
        "batches.B": 8,
        "batches.eval_B": 8,
        "optim.steps": STEPS,
        "train.eval_every": 4,
        "train.save_every": 2,
    }

    def command(name):
        job = [sys.executable, "-m", "finetune.main"]
        job += ["--config=configs/finetune/textrnn.py:coupled", f"--workdir={tmp_path / name}"]
        return [*job, *(f"--config.{field}={value}" for field, value in flags.items())]

    return command


def test_two_processes_learn_several_tasks_as_one_does(several, toy, tmp_path):
    finished(several("one"), toy)
    launch = [sys.executable, "-m", "launch.local", "-n", "2", "--"]
    finished([*launch, *several("two")], toy, devices=2)
    one, two = (evaluations(tmp_path / name) for name in ("one", "two"))
    assert len(one) == STEPS / 4
    assert {"sst1/dev/accuracy", "sst2/test/loss", "mean/dev"} <= one[STEPS].keys()
    for step, values in one.items():
        assert two[step] == pytest.approx(values, rel=1e-3)
    assert (tmp_path / "two" / "predictions" / "sst2" / "test.jsonl").exists()
