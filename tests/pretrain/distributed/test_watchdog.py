"""A run that hangs says so and leaves its stacks; one that works leaves a sign of life."""

import contextlib
import itertools
import json
import pathlib
import re
import threading
import time

import pytest

from pretrain.distributed import watchdog as watches
from tests.support import regression


@contextlib.contextmanager
def watching(workdir, **options):
    with contextlib.closing(watches.Watch(workdir, look=0.01, **options)) as watch:
        yield watch


def heartbeat(workdir, process: int = 0) -> dict:
    return json.loads((pathlib.Path(workdir) / "heartbeats" / f"{process}.json").read_text())


def stacks(workdir) -> str:
    path = pathlib.Path(workdir) / "stacks" / "0.txt"
    return path.read_text() if path.exists() else ""


def work(watch, doing: str, seconds, first: int = 1) -> None:
    for step, each in enumerate(seconds, first):
        with watch(doing, step):
            time.sleep(each)


def eventually(happened, seconds: float = 60.0) -> bool:
    deadline = time.monotonic() + seconds
    while not happened() and time.monotonic() < deadline:
        time.sleep(0.01)
    return happened()


@pytest.fixture
def sharp(monkeypatch):
    """Whatever takes 20 times as long as usual is slow, if it takes but milliseconds."""
    monkeypatch.setattr(watches, "LEAST", 0.0)


def test_work_20_times_slower_than_the_median_leaves_every_stack(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(watches, "LEAST", 0.2)
    free = threading.Event()

    def a_thread_that_waits_for_ever():
        free.wait()

    thread = threading.Thread(target=a_thread_that_waits_for_ever)
    thread.start()
    with watching(tmp_path) as watch:
        work(watch, "training", [0.001] * 5)
        assert not stacks(tmp_path)
        with watch("training", 6):
            assert eventually(lambda: "a_thread_that_waits_for_ever" in stacks(tmp_path))
    free.set()
    thread.join()
    assert "test_watchdog.py" in stacks(tmp_path)
    assert "step 6: training has taken" in stacks(tmp_path)
    said = capsys.readouterr().err
    assert "process 0: step 6: training has taken" in said
    assert str(tmp_path / "stacks" / "0.txt") in said


@pytest.mark.usefixtures("sharp")
def test_it_is_told_again_whenever_the_time_has_doubled(tmp_path):
    with watching(tmp_path) as watch:
        work(watch, "training", [0.001] * 5)
        with watch("training", 6):
            assert eventually(lambda: stacks(tmp_path).count("step 6") >= 4)
    took = [
        float(each) for each in re.findall(r"step 6: training has taken (\S+) s", stacks(tmp_path))
    ]
    assert all(b >= 1.9 * a for a, b in itertools.pairwise(took)), took


@pytest.mark.usefixtures("sharp")
def test_each_kind_of_work_is_measured_by_its_own_median(tmp_path):
    with watching(tmp_path) as watch:
        work(watch, "training", [0.001] * 9)
        work(watch, "evaluating", [0.2] * 5)
        assert watch.limit("training") < 1 < watch.limit("evaluating")
    assert not stacks(tmp_path)


def test_what_has_no_median_yet_is_never_slow(tmp_path):
    """The first step compiles, for an hour maybe."""
    with watching(tmp_path) as watch:
        work(watch, "training", [0.0] * (watches.KNOWN - 1))
        assert watch.limit("training") == float("inf")
        work(watch, "training", [0.0])
        assert watch.limit("training") == watches.LEAST


def test_the_heartbeat_says_what_goes_on_since_when_and_that_it_has_ended(tmp_path):
    before = time.time()
    with watching(tmp_path, period=0.0) as watch, watch("training", 7):
        assert eventually(lambda: _doing(tmp_path) == ("training", 7))
        one = heartbeat(tmp_path)
        assert eventually(lambda: heartbeat(tmp_path)["time"] > one["time"])
        other = heartbeat(tmp_path)
    assert before <= one["began"] <= one["since"] <= one["time"] < other["time"]
    assert abs(other["since"] - one["since"]) < 0.5  # it is alive, and has not got on
    assert heartbeat(tmp_path)["doing"] == "ended"


def _doing(workdir) -> tuple[str, int] | None:
    with contextlib.suppress(OSError):
        beat = heartbeat(workdir)
        return beat["doing"], beat["step"]
    return None


def test_the_next_life_of_a_run_knows_when_the_first_began(tmp_path):
    with watching(tmp_path) as first:
        pass
    with watching(tmp_path) as second:
        assert second.began == first.began


@pytest.mark.parametrize("text", ["", "{", "[]", '{"began": null}', '{"began": "x"}', "{}"])
def test_a_heartbeat_that_cannot_be_read_does_no_harm(tmp_path, text):
    path = tmp_path / "0.json"
    path.write_text(text)
    assert watches.read_first_start(path, 5.0) == 5.0


def test_what_a_killed_life_left_half_written_is_removed(tmp_path):
    (tmp_path / "heartbeats").mkdir()
    for name in (".0.json.123.tmp", ".1.json.123.tmp"):
        (tmp_path / "heartbeats" / name).write_text("{")
    with watching(tmp_path):
        pass
    names = sorted(path.name for path in (tmp_path / "heartbeats").iterdir())
    assert names == [".1.json.123.tmp", "0.json"]  # the other process's are its own


def test_a_folder_that_cannot_be_written_does_no_harm(tmp_path):
    (tmp_path / "heartbeats").write_text("a file")
    with watching(tmp_path, period=0.0) as watch, watch("training", 1):
        time.sleep(0.05)
    assert not watch.thread.is_alive()


def test_a_step_that_hangs_in_a_run_is_told_of(tmp_path, monkeypatch, capsys):
    drawn, slow = regression.draw, 8

    def draw(seed):
        if seed == slow:
            assert eventually(lambda: stacks(tmp_path))
        return drawn(seed)

    monkeypatch.setattr(regression, "draw", draw)
    monkeypatch.setattr(watches, "LEAST", 0.5)
    state = regression.run(tmp_path, optim__steps=slow + 2, train__eval_every=0).state
    assert int(state.step) == slow + 2
    assert "step 9: waiting for a batch has taken" in capsys.readouterr().err
    assert "batch" in stacks(tmp_path)
    assert heartbeat(tmp_path)["doing"] == "ended"
