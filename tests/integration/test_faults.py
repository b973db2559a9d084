"""What befalls a run - a kill, a request to stop, numbers that explode - costs it no step."""

import functools
import random
import signal
import time

import jax
import numpy as np
import pytest

from pretrain.checkpoint.manager import Checkpoints
from pretrain.distributed.processes import multihost_utils
from pretrain.runtime.errors import UserError
from pretrain.training import hooks
from tests.support import corpora, regression
from tests.support import tiny_runs as toys
from tests.support.array_files import small_disk

pytest_plugins = ["tests.support.tiny_runs"]

LONG = {"train.save_every": 1, "train.eval_every": 8}
ENDLESS = {"optim.steps": 2000, "train.save_every": 5000, "train.eval_every": 5000}


@pytest.fixture(scope="module")
def undisturbed(toy, tmp_path_factory):
    """A run that nothing befell: (recipe, steps, does it go on) -> its workdir and changes."""

    @functools.cache
    def run(recipe, steps, goes_on=False):
        workdir = tmp_path_factory.mktemp("undisturbed")
        changes = LONG | {"optim.steps": steps}
        if goes_on:
            changes |= {"init": run(recipe, 3)[0], "corpus.tokens.extend": 2}
            changes["corpus.source"] = corpora.write_with_new_words(workdir / "text.txt")
        toys.finish(toy.start(recipe, workdir, changes))
        return workdir, changes

    return run


# --- kill -9 ---------------------------------------------------------------------------------


def kill_somewhere(toy, recipe, workdir, changes, draw) -> bool:
    """Starts the run, and kills it within moments of its first new step; False if it got away."""
    before = len(toys.written(workdir))
    process = toy.start(recipe, workdir, changes)
    while process.poll() is None and len(toys.written(workdir)) <= before:
        time.sleep(0.01)
    time.sleep(draw.random())
    process.kill()
    process.communicate()
    return process.returncode == -signal.SIGKILL


@pytest.mark.parametrize("recipe", toys.QUICKEST)
@pytest.mark.parametrize(
    ("kills", "steps", "goes_on"),
    [
        (1, 8, False),
        pytest.param(4, 8, True, marks=pytest.mark.slow),  # from another run, with more words
        pytest.param(20, 40, False, marks=[pytest.mark.slow, pytest.mark.timeout(1800)]),
    ],
)
def test_a_run_killed_again_and_again_arrives_bit_for_bit(
    toy, undisturbed, tmp_path, recipe, kills, steps, goes_on
):
    (whole, changes), draw = undisturbed(recipe, steps, goes_on), random.Random(kills)
    hit = [kill_somewhere(toy, recipe, tmp_path, changes, draw) for _ in range(kills)]
    assert hit[0]
    toys.finish(toy.start(recipe, tmp_path, changes))
    assert toys.sums(tmp_path, steps) == toys.sums(whole, steps)
    assert toys.written(tmp_path) == toys.written(whole)
    counted = [line["step"] for line in toys.written(tmp_path) if "loss" in line]
    assert counted == list(range(1, steps + 1))


# --- asked to stop ---------------------------------------------------------------------------

MOMENTS = {  # what a run does when it is asked: the changes that make it do little else
    "training": {},
    "evaluating": {"train.eval_every": 1, "train.eval_batches": 0, "evals.held_out.B": 2},
    "saving": {"train.save_every": 1},
}


@pytest.mark.slow
@pytest.mark.parametrize("recipe", toys.RECIPES)
@pytest.mark.parametrize("moment", MOMENTS)
def test_asked_to_stop_a_run_saves_its_step_and_goes_on_exactly(toy, tmp_path, recipe, moment):
    changes = ENDLESS | MOMENTS[moment]
    process = toy.start(recipe, tmp_path / "run", changes)
    toys.wait_for(lambda: toys.written(tmp_path / "run"), process)
    process.send_signal(signal.SIGTERM)
    toys.finish(process, 75)
    stop = toys.checkpoints(tmp_path / "run")[-1]
    assert 0 < stop < 2000
    # The schedule is that of 2000 steps; only the end is moved, and the data are read afresh.
    end = {"train.save_every": stop + 2, "train.keep_every": stop + 2}
    straight, resumed = tmp_path / "straight", tmp_path / "run"
    for workdir in (straight, resumed):
        process = toy.start(recipe, workdir, changes | end)
        toys.wait_for(lambda w=workdir: toys.past(w, stop + 2), process)
        process.kill()
        process.communicate()
    assert toys.sums(resumed, stop + 2) == toys.sums(straight, stop + 2)
    assert _until(resumed, stop + 2) == _until(straight, stop + 2)


def _until(workdir, step) -> list[dict]:
    return [line for line in toys.written(workdir) if line["step"] <= step]


def test_a_request_to_stop_is_heard_whatever_step_is_being_saved(toy, tmp_path):
    """Orbax asks the same service, counting steps; an answer to one must not use up the other's."""
    asked: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(multihost_utils, "reached_preemption_sync_point", asked.append)
        saved = Checkpoints(tmp_path)
        saved.save(7, {"step": jax.numpy.int32(7)}, {})
        saved.close()
    assert asked == []


# --- a disk that is full ---------------------------------------------------------------------


def test_a_save_that_failed_ends_the_run_at_the_next_step(tmp_path, monkeypatch):
    save = hooks.SaveCheckpoint.__call__

    def save_and_fail(self, *arguments):
        with small_disk(1000):
            save(self, *arguments)
            while self.saved.manager.is_saving_in_progress():
                time.sleep(0.01)

    monkeypatch.setattr(hooks.SaveCheckpoint, "__call__", save_and_fail)
    with pytest.raises(UserError, match="could not be written in"):
        regression.run(tmp_path, train__eval_every=0)
    assert [line["step"] for line in toys.written(tmp_path)] == [1, 2]  # saved every 2


@pytest.mark.slow
def test_a_save_that_failed_in_one_process_ends_all(toy, tmp_path):
    toys.build(toy.config("bilm"))  # prepares the corpus
    changes = {"optim.steps": 100_000, "train.save_every": 50, "model.U": 256}
    words = ["bilm", tmp_path, changes]
    limited = ["sh", "-c", 'test $JAX_PROCESS_ID = 0 || ulimit -f 30; exec "$@"', "sh"]
    processes = toy.together([*limited, *toy.command(*words)])
    first, second = (process.communicate()[1].rstrip() for process in processes)
    assert [process.returncode for process in processes] == [75, 1]
    assert second.splitlines()[-1].startswith("error: a checkpoint could not be written in")
    assert first.splitlines()[-1].startswith("error: process 1 of 2 was lost")
    assert toys.written(tmp_path)[-1]["step"] < 5000


# --- numbers that explode --------------------------------------------------------------------


def train(workdir, poisoned, **changes):
    """The final state of a run of whose batches these have weights that no loss survives."""

    def draw(seed):
        infinite = {"weight_B": np.full(regression.B, np.inf, np.float32)}
        return drawn(seed) | (infinite if seed in poisoned else {})

    drawn = regression.draw
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(regression, "draw", draw)
        return regression.run(workdir, **{"train__eval_every": 0} | changes).state


def events(workdir) -> list[dict]:
    return [line for line in toys.written(workdir) if line.get("event") == "skipped"]


@pytest.mark.parametrize("log_every", [1, 4])
def test_a_step_that_is_not_finite_is_skipped_counted_and_named(tmp_path, log_every):
    # Batches are counted from 0: steps 3 and 4.
    state = train(tmp_path, [2, 3], train__log_every=log_every)
    assert (int(state.step), int(state.skipped), int(state.consecutive_skips)) == (6, 2, 0)
    assert events(tmp_path) == [
        {"step": 3, "event": "skipped", "batch": 2, "consecutive_skips": 1},
        {"step": 4, "event": "skipped", "batch": 3, "consecutive_skips": 2},
    ]
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(jax.device_get(state.params)))


def test_a_skipped_step_changes_nothing_but_the_counters(tmp_path):
    train(tmp_path, [3, 4, 5], train__save_every=1, train__keep=9)
    before, after = toys.sums(tmp_path, 3), toys.sums(tmp_path, 6)
    changed = {name for name in before if before[name] != after[name]}
    assert changed == {"step", "skipped", "consecutive_skips"}


@pytest.mark.parametrize("log_every", [1, 100])
def test_when_too_many_steps_are_skipped_the_last_finite_state_can_be_resumed(tmp_path, log_every):
    changes = dict(train__max_skips=2, train__save_every=100, train__log_every=log_every)
    with pytest.raises(hooks.NotFiniteError, match=r"2 steps in a row, up to step 4.*optim\.lr"):
        train(tmp_path, [2, 3, 4, 5], **changes)
    # A step is looked at when the next is on its way, or before it is logged.
    assert [event["batch"] for event in events(tmp_path)] == [2, 3] + [4] * (log_every > 1)
    assert toys.checkpoints(tmp_path) == [4 if log_every == 1 else 5]
    state = train(tmp_path, [], **changes)
    assert (int(state.step), int(state.consecutive_skips)) == (6, 0)


@pytest.mark.parametrize(
    ("lr", "said"), [(1e30, "3 steps in a row"), (1e39, "not finite")], ids=["steps", "weights"]
)
def test_a_learning_rate_that_explodes_ends_the_run_in_a_line(tmp_path, lr, said):
    changes = dict(train__max_skips=3, optim__steps=20, train__save_every=100, optim__lr=lr)
    with pytest.raises(UserError, match=said):
        train(tmp_path, [], **changes)
    if said == "3 steps in a row":
        assert events(tmp_path)[-1]["consecutive_skips"] == 3
        assert toys.checkpoints(tmp_path)
    else:  # weights that overflow are never saved
        assert not toys.checkpoints(tmp_path)
