"""Goodput counts what a run's lives together have made of their time."""

import time

import numpy as np

from pretrain.training.reports import metrics_file
from pretrain.training.reports.goodput import Goodput
from pretrain.training.reports.meter import Meter
from pretrain.training.train_state import StepMetrics
from tests.support import regression


def test_it_is_the_share_of_the_time_since_the_first_start():
    goodput = Goodput(100.0, now=lambda: 200.0)
    goodput.add(30.0)
    goodput.add(20.0)
    assert goodput.compute_share() == 0.5


def test_steps_lost_with_a_life_and_the_time_without_one_count_as_lost():
    first = Goodput(0.0, now=lambda: 100.0)
    first.add(60.0)
    saved = first.state_dict(more=20.0)
    first.add(30.0)  # and then the machine is gone
    second = Goodput(250.0, now=lambda: 400.0)
    second.load_state_dict(saved)
    second.add(80.0)
    assert second.compute_share() == (60 + 20 + 80) / 400


def test_a_run_killed_before_its_first_checkpoint_has_lost_that_time():
    again = Goodput(0.0, now=lambda: 100.0)  # as its heartbeat says
    again.load_state_dict({})
    again.add(25.0)
    assert again.compute_share() == 0.25


def test_compiling_and_waiting_for_data_are_no_steps(monkeypatch):
    # Of each step: when it is waited for, when its batch is there, and when the one before is done.
    clock = iter([0.0, 0.0, 1.0, 3.0, 10.0, 11.0, 12.0, 14.0])
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    meter, sums = Meter(), StepMetrics({}, np.float32(1), np.int32(0))
    meter.add(sums)  # the first, which compiles
    for _ in range(2):
        with meter.measure_wait():
            pass  # 1 second of the 3 and 4 that the step takes
        meter.add(sums)
    assert meter.busy == 5.0


def test_a_run_writes_it_down_and_resumes_it(tmp_path):
    def train(steps: int) -> list[dict]:
        few = {"train__eval_every": 0, "train__log_every": 4, "train__save_every": 6}
        regression.run(tmp_path, **few, optim__steps=steps)
        return [x for x in metrics_file.read_lines(tmp_path / "metrics.jsonl") if "goodput" in x]

    began = time.time()
    lines, took = train(12), time.time() - began
    assert [line["step"] for line in lines] == [4, 8, 12]
    # The first line has the step that compiled, which is not timed.
    busy = sum(4 / line["steps_per_s"] * (1 - line["data_wait"]) for line in lines[1:])
    assert 0.99 * busy < lines[-1]["goodput"] * took < took

    again = train(13)[-1]  # one step more, which compiles: nothing of it is busy
    assert again["step"] == 13
    assert 0.99 * busy < again["goodput"] * (time.time() - began)  # what was done is not forgotten
    assert again["goodput"] < lines[-1]["goodput"]
