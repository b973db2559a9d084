"""Points outlive a killed run, and no step is shown twice."""

import struct

import pytest
from tensorboardX.proto import event_pb2

from pretrain.runtime.errors import UserError
from pretrain.training.reports import goodput
from pretrain.training.reports.metrics_logger import MetricsLogger, StepMonitor
from pretrain.training.reports.progress_line import Progress
from pretrain.training.reports.totals import Totals
from tests.support.tracking_service import open_writer


def points(workdir) -> list[tuple[int, str, float]]:
    """What TensorBoard would show of all lives: what a later life begins anew is hidden."""
    shown: list[tuple[int, str, float]] = []
    for path in sorted((workdir / "tensorboard").iterdir()):
        raw = path.read_bytes()
        while raw:
            size = struct.unpack("<Q", raw[:8])[0]
            event = event_pb2.Event.FromString(raw[12 : 12 + size])
            raw = raw[16 + size :]
            if event.session_log.status == event_pb2.SessionLog.START:
                shown = [point for point in shown if point[0] < event.step]
            shown += [(event.step, x.tag, x.simple_value) for x in event.summary.value]
    return shown


def test_what_was_flushed_outlives_a_killed_run(tmp_path):
    writer = open_writer(tmp_path, 0, "tensorboard")
    for step in range(1, 40):
        writer.write(step, loss=step / 2)
        writer.write(step, **{"dev/loss": step / 4})
    writer.flush()
    expected = [(s, n, s / d) for s in range(1, 40) for n, d in (("loss", 2), ("dev/loss", 4))]
    assert points(tmp_path) == expected


def test_what_a_checkpoint_counts_as_done_is_on_disk_before_it(tmp_path):
    writer = open_writer(tmp_path, 0, "tensorboard")
    monitor = StepMonitor(writer, Progress(9), flops=None, max_skips=1, totals=Totals())
    logger = MetricsLogger(1, monitor, None, goodput.Goodput(0.0))
    writer.write(7, loss=0.5)
    logger.state_dict()  # for the checkpoint
    assert points(tmp_path) == [(7, "loss", 0.5)]


@pytest.mark.parametrize("step", [0, 3])
def test_tensorboard_shows_no_step_of_two_lives_twice(tmp_path, step):
    for life, begin in enumerate((0, step)):
        writer = open_writer(tmp_path, begin, "tensorboard")
        for each in range(begin + 1, 6):
            writer.write(each, loss=float(life))
        writer.flush()
    assert points(tmp_path) == [(s, "loss", float(s > step)) for s in range(1, 6)]


def test_a_tensorboard_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "tensorboard").write_text("")
    with pytest.raises(UserError, match=r"cannot write .*tensorboard: File exists"):
        open_writer(tmp_path, 0, "tensorboard")
