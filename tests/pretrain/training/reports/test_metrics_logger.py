"""Skipped steps are told one step late, and too many of them end the run."""

import types

import numpy as np
import pytest

from pretrain.data.batches import name_arrays
from pretrain.training.hooks import NotFiniteError
from pretrain.training.reports.metrics_file import Writer, read_lines
from pretrain.training.reports.metrics_logger import StepMonitor
from pretrain.training.reports.progress_line import Progress
from pretrain.training.reports.totals import Totals
from pretrain.training.train_state import StepMetrics

DATA = types.SimpleNamespace(B=2, L=3)


@pytest.fixture
def observe(tmp_path):
    """(step, skipped steps in a row) -> the report of the step, to a monitor that takes one."""
    writer = Writer(tmp_path, 0)
    monitor = StepMonitor(writer, Progress(9), lambda B, L: 1.0, 2, Totals())

    def observe(step, skips, L=3, task=""):
        batch = name_arrays(task, {"tokens_BL": np.zeros((DATA.B, L))})
        return monitor.observe(step, DATA, StepMetrics({}, np.float32(1), np.int32(skips)), batch)

    observe.monitor = monitor
    yield observe
    writer.close()


def test_a_skipped_step_is_told_with_its_batch_one_step_late(observe, tmp_path):
    observe(1, 0)
    observe(2, 1)
    assert not read_lines(tmp_path / "metrics.jsonl")
    assert not observe(3, 0).stop
    skipped = {"step": 2, "event": "skipped", "batch": 1, "consecutive_skips": 1}
    assert read_lines(tmp_path / "metrics.jsonl") == [skipped]


def test_too_many_skips_end_the_run_with_an_error_in_the_latest_report(observe):
    observe(1, 1)
    report = observe(2, 2)
    assert not report.stop
    observe.monitor.catch_up()
    assert report.stop
    assert not report.is_finished
    assert isinstance(report.error, NotFiniteError)


def test_a_cut_batch_counts_as_long_as_it_is_and_new_lengths_are_not_timed(observe):
    meter = observe.monitor.meter
    for step, L in enumerate((3, 2, 3, 2), 1):
        with meter.measure_wait():
            pass
        observe(step, 0, L)
    assert (meter.steps, meter.tokens) == (2, 2 * 3 + 2 * 2)  # the first of each was compiled
    assert (observe.monitor.totals.tokens, observe.monitor.totals.flops) == (2 * 10, 4)
    with meter.measure_wait():
        pass
    observe(5, 0, 3, "sst1")  # another task's step, though it is as long
    assert meter.steps == 2
