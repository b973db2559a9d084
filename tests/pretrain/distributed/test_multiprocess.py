"""A run of several processes: what one number of them leaves another goes on from, exactly.

And what befalls one of them - lost, stopped, too slow - is told by the others in a line, soon, and
costs nothing but the steps since the last checkpoint.
"""

import functools
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time
from typing import NamedTuple

import jax
import numpy as np
import pytest

from pretrain.checkpoint import verification
from pretrain.runtime.errors import TRY_AGAIN
from tests.support import fake_clouds
from tests.support import tiny_runs as toys

pytest_plugins = ["tests.support.tiny_runs"]

HEARTBEAT = 8  # seconds; more than a busy machine keeps a process waiting
GRACE = 15  # seconds more within which the others have ended
ENDLESS = {"optim.steps": 2000, "train.save_every": 2, "train.keep_every": 2, "train.eval_every": 3}
ATTEMPT = [sys.executable, "-m", "launch.attempt", "--"]


def launched(toy, recipe, workdir, changes, count=2, devices=2, launcher=()):
    """A run of so many processes."""
    command = toy.command(recipe, workdir, changes, f"--heartbeat={HEARTBEAT}")
    return toy.together([*launcher, *command], count, devices)


def go_on(toy, recipe, workdir, step, count=2, devices=2) -> None:
    """Begins or goes on until this step is saved and its lines are written."""
    processes = launched(toy, recipe, workdir, ENDLESS, count, devices)
    toys.wait_for(lambda: toys.past(workdir, step), processes[0])
    for process in processes:
        process.kill()
    for process in processes:
        process.communicate()


def copied(workdir, to, step: int) -> pathlib.Path:
    """The same run as it was at an earlier step."""
    shutil.copytree(workdir, to)
    for later in toys.checkpoints(to):
        if later > step:
            shutil.rmtree(to / "checkpoints" / str(later))
    metrics = to / "metrics.jsonl"
    rows = metrics.read_text().splitlines(keepends=True)
    metrics.write_text("".join(row for row in rows if json.loads(row)["step"] <= step))
    return to


def lines(workdir, step: int) -> list[dict]:
    """What was written up to this step."""
    return [line for line in toys.written(workdir) if line["step"] <= step]


def losses(workdir, step: int) -> list[list[float]]:
    """Of each line that has some: a step's or an evaluation's."""
    found = [[line[k] for k in line if k.endswith("loss")] for line in lines(workdir, step)]
    return [line for line in found if line]


def assert_same(one, other, step: int) -> None:
    """Two runs have the same bits and the same metrics up to this step."""
    assert toys.sums(one, step) == toys.sums(other, step)
    assert lines(one, step) == lines(other, step)


class Lost(NamedTuple):
    """A run of two processes, one of which was killed: what became of the other."""

    workdir: pathlib.Path
    code: int
    said: str
    lost_said: str

    @property
    def step(self) -> int:
        """The last that was saved."""
        return toys.checkpoints(self.workdir)[-1]


@pytest.fixture(scope="module")
def lost(toy, tmp_path_factory):
    """(recipe, number of the process to kill) -> `Lost`, each made once, at step 6 or later."""

    @functools.cache
    def run(recipe: str, victim: int) -> Lost:
        workdir = tmp_path_factory.mktemp("lost")
        # Where process 0 is lost JAX aborts the other, of which only a launcher makes a 75.
        both = launched(toy, recipe, workdir, ENDLESS, launcher=[] if victim else ATTEMPT)
        toys.wait_for(lambda: toys.past(workdir, 6), both[0])
        both[victim].kill()
        out, said = both[1 - victim].communicate(timeout=HEARTBEAT + GRACE)
        _, lost_said = both[victim].communicate()
        return Lost(workdir, both[1 - victim].returncode, out + said, lost_said)

    return run


@pytest.fixture(scope="module")
def straight(toy, tmp_path_factory):
    """(recipe, processes, devices of each, step) -> a run that nothing befell up to that step."""

    done: dict[tuple, pathlib.Path] = {}

    def run(recipe: str, count: int, devices: int, step: int) -> pathlib.Path:
        key = recipe, count, devices
        if key not in done or not toys.past(done[key], step):
            done[key] = tmp_path_factory.mktemp("straight")
            go_on(toy, recipe, done[key], step, count, devices)
        return done[key]

    return run


# --- kill -9 ---------------------------------------------------------------------------------


def assert_last_line(said: str, pattern: str) -> None:
    """One error, the last line, and none of what only a programmer can read."""
    assert re.fullmatch(pattern, said.rstrip("\n").split("\n")[-1]), said
    assert said.count("error:") == 1, said
    assert "Traceback" not in said, said


NAMED = rf"error: process {{}} of 2 was lost \(no sign of life for {HEARTBEAT} s; .*\): start .*"


@pytest.mark.slow
@pytest.mark.parametrize("recipe", toys.RECIPES)
def test_a_lost_process_is_named_and_the_first_alone_reports(lost, recipe):
    found = lost(recipe, 1)
    assert found.code == TRY_AGAIN
    assert_last_line(found.said, NAMED.format(1))
    assert "step 1/2000" in found.said
    # It may say that it waits for the corpus, and name the other's command, with its optim.steps.
    assert "step 1/2000" not in found.lost_said
    assert len(list((found.workdir / "tensorboard").iterdir())) == 1
    steps = [line["step"] for line in toys.written(found.workdir) if "lr" in line]
    assert steps == list(range(1, len(steps) + 1))


@pytest.mark.slow
@pytest.mark.parametrize("recipe", ["bilm", "plm"])
def test_the_loss_of_the_first_process_ends_the_other(lost, recipe):
    found = lost(recipe, 0)
    assert found.code == TRY_AGAIN
    assert "process 0" in found.said.rstrip("\n").split("\n")[-1], found.said


CASES = [("bilm", 0), ("bilm", 1), ("plm", 0), ("plm", 1), ("mlm", 1), ("clm", 1)]


@pytest.mark.slow
@pytest.mark.parametrize(("recipe", "victim"), CASES)
def test_a_run_that_lost_a_process_goes_on_exactly(toy, lost, straight, tmp_path, recipe, victim):
    end = lost(recipe, victim).step + 2
    resumed = copied(lost(recipe, victim).workdir, tmp_path / "run", end)
    go_on(toy, recipe, resumed, end)
    assert_same(resumed, straight(recipe, 2, 2, end), end)


# --- another number of processes -------------------------------------------------------------


def carry(workdir, step: int) -> dict[str, np.ndarray]:
    """What a run remembers between batches, from a checkpoint."""
    here = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    like = {
        name: jax.ShapeDtypeStruct(tuple(x["shape"]), x["dtype"], sharding=here)
        for name, x in toys.sums(workdir, step).items()
        if name.startswith("carry/")
    }
    if not like:  # as of BERT and GPT
        return {}
    leaves, _ = verification.load(workdir / "checkpoints" / str(step), like, "carry/")
    return jax.device_get(leaves)


def rows_of(name: str, x: np.ndarray) -> np.ndarray:
    """The same with the rows of the batch in front: "h_BMD" has them there."""
    letters = name.rpartition("_")[2]
    return np.moveaxis(x, letters.index("B") - len(letters), 0)


MORE = [("bilm", 2), ("plm", 2), ("plm", 4), ("mlm", 4), ("clm", 2)]


@pytest.mark.parametrize(
    ("recipe", "devices"),
    [("bilm", 4), *(pytest.param(*case, marks=pytest.mark.slow) for case in MORE)],
)
def test_one_process_goes_on_and_remembers_what_two_do(toy, straight, tmp_path, recipe, devices):
    two = straight(recipe, 2, 2, 6)
    one = copied(two, tmp_path / "run", 4)
    go_on(toy, recipe, one, 6, count=1, devices=devices)
    np.testing.assert_allclose(losses(one, 6), losses(two, 6), rtol=1e-5)
    assert len(losses(one, 6)) == 6 + 2
    memories = carry(one, 6), carry(two, 6)
    assert memories[0].keys() == memories[1].keys()
    for name, x in memories[0].items():
        np.testing.assert_allclose(memories[1][name], x, rtol=1e-3, atol=1e-5)
    rows = [rows_of(name, x) for name, x in memories[0].items()]
    for row in range(1, len(rows[0]) if rows else 0):  # and no two rows remember the same
        assert any(not np.allclose(x_B[row], x_B[row - 1], rtol=1e-3, atol=1e-5) for x_B in rows)


@pytest.mark.slow
@pytest.mark.parametrize("recipe", toys.RECIPES)
def test_two_processes_go_on_with_what_one_began(toy, straight, tmp_path, recipe):
    whole = straight(recipe, 1, 4, 6)
    resumed = copied(whole, tmp_path / "run", 4)
    go_on(toy, recipe, resumed, 6)
    np.testing.assert_allclose(losses(resumed, 6), losses(whole, 6), rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("recipe", [*toys.RECIPES, "packed"])
@pytest.mark.parametrize("mesh", [{}, {"mesh.fsdp": 4, "mesh.data": 1}])
def test_two_processes_learn_what_one_learns(toy, tmp_path, recipe, mesh):
    for process in launched(toy, recipe, tmp_path / "two", mesh):
        toys.finish(process)
    toys.finish(toy.start(recipe, tmp_path / "one", mesh, devices=4))
    one, two = (losses(tmp_path / name, toys.STEPS) for name in ("one", "two"))
    assert len(one) == 8
    np.testing.assert_allclose(two, one, rtol=1e-5)


# --- asked to stop, or slow ------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("recipe", toys.RECIPES)
def test_one_of_two_asked_to_stop_stops_both_exactly(toy, straight, tmp_path, recipe):
    both = launched(toy, recipe, tmp_path, ENDLESS | {"train.save_every": 5000})
    toys.wait_for(lambda: toys.written(tmp_path), both[0])
    both[1].send_signal(signal.SIGTERM)
    said = [toys.finish(process, TRY_AGAIN) for process in both]
    (stop,) = toys.checkpoints(tmp_path)
    assert 0 < stop < 2000, said
    assert toys.written(tmp_path)[-1]["step"] == stop
    end = stop + 2 + stop % 2
    go_on(toy, recipe, tmp_path, end)
    assert_same(tmp_path, straight(recipe, 2, 2, end), end)


@pytest.mark.slow
@pytest.mark.parametrize("sleeper", [0, 1])
def test_a_slow_process_is_waited_for_and_a_stopped_one_lost(toy, straight, tmp_path, sleeper):
    both = launched(toy, "bilm", tmp_path, ENDLESS, launcher=ATTEMPT)
    toys.wait_for(lambda: toys.checkpoints(tmp_path), both[0])
    program = fake_clouds.find_child(both[sleeper])
    os.kill(program, signal.SIGSTOP)
    time.sleep(HEARTBEAT / 2)
    end = toys.checkpoints(tmp_path)[-1] + 4
    os.kill(program, signal.SIGCONT)
    toys.wait_for(lambda: toys.past(tmp_path, end), both[0])
    os.kill(program, signal.SIGSTOP)  # the collective hangs, as it does on accelerators
    said, _ = both[1 - sleeper].communicate(timeout=HEARTBEAT + GRACE)
    assert both[1 - sleeper].returncode == TRY_AGAIN
    assert_last_line(said, NAMED.format(sleeper))
    os.kill(program, signal.SIGCONT)
    both[sleeper].communicate(timeout=HEARTBEAT + GRACE)
    assert both[sleeper].returncode == TRY_AGAIN
    assert_same(tmp_path, straight("bilm", 2, 2, end), end)


@pytest.mark.slow
def test_a_mistake_that_only_one_process_meets_ends_both(toy, tmp_path):
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=toys.ROOT,
    ) as holder:
        assert holder.stdout
        assert holder.stdout.readline() == "held\n"
        both = launched(toy, "bilm", tmp_path, {}, launcher=ATTEMPT)
        said = ["".join(process.communicate(timeout=HEARTBEAT + 50)) for process in both]
        holder.kill()
    assert [process.returncode for process in both] == [1, TRY_AGAIN], said
    assert f"error: {tmp_path} is in use by pid {holder.pid}" in said[0]
    assert "process 0" in said[1].rstrip("\n").split("\n")[-1]


HOLD = """
import sys, time
from pretrain.runtime.locks import lock_workdir
with lock_workdir(sys.argv[1]):
    print("held", flush=True)
    time.sleep(600)
"""
