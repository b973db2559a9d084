"""What was written once is neither lost nor repeated."""

import json
import math

import numpy as np
import pytest
from tensorboardX import record_writer

from pretrain.runtime.errors import UserError
from pretrain.training.reports import metrics_file
from pretrain.training.reports.metrics_file import Writer
from tests.support.tracking_service import open_writer


def lines_of(workdir):
    return [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]


def test_a_resumed_run_forgets_what_it_wrote_beyond_the_checkpoint(tmp_path):
    for step, steps in ((0, range(1, 6)), (3, range(4, 8))):
        writer = Writer(tmp_path, step)
        for each in steps:
            writer.write(each, loss=float(each), life=step)
        writer.close()
    assert [line["step"] for line in lines_of(tmp_path)] == list(range(1, 8))
    assert [line["life"] for line in lines_of(tmp_path)] == [0, 0, 0, 3, 3, 3, 3]


def test_an_evaluation_to_be_repeated_is_forgotten(tmp_path):
    writer = Writer(tmp_path, 0)
    for step in (1, 2):
        writer.write(step, loss=0.5)
        writer.write(step, **{"dev/loss": 0.25})
    writer.forget_evaluation(2)
    writer.close()
    names = [set(line) - {"step"} for line in lines_of(tmp_path)]
    assert names == [{"loss"}, {"dev/loss"}, {"loss"}]


def test_a_resumed_run_forgets_a_line_cut_short(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"step": 1}\n{"step": 2}\n{"st')
    writer = Writer(tmp_path, 2)
    writer.write(3)
    writer.close()
    assert [line["step"] for line in lines_of(tmp_path)] == [1, 2, 3]


def test_every_line_is_strict_json(tmp_path):
    writer = Writer(tmp_path, 0)
    writer.write(1, loss=math.nan, norm=math.inf, lr=np.float32(0.5), event="skipped", batch=7)
    writer.close()
    line = json.loads((tmp_path / "metrics.jsonl").read_text(), parse_constant=pytest.fail)
    assert line == {"step": 1, "loss": None, "norm": None, "lr": 0.5, "event": "skipped"} | {
        "batch": 7
    }


@pytest.mark.parametrize("end", ['{"step": 3', '{"step": 3\n', ""])
def test_a_last_line_cut_short_is_left_out(tmp_path, end):
    (tmp_path / "m").write_text('{"step": 1}\n{"step": 2}\n' + end)
    assert metrics_file.read_lines(tmp_path / "m") == [{"step": 1}, {"step": 2}]


@pytest.mark.parametrize(
    "line",
    [
        b'{"st',
        b"5",
        b"[]",
        b"null",
        b'{"a": 1}',
        b'{"step": 1.5}',
        b'{"step": -1}',
        b'{"step": true}',
        b'{"step": 2, "loss": 1e999}',
        b'{"step": 2, "loss": \xff}',
        b'{"step": ' + b"9" * 5000 + b"}",
        b"[" * 200_000,
    ],
)
def test_a_resumed_run_leaves_out_and_names_any_broken_line(tmp_path, capsys, line):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"step": 1}\n' + line + b'\n{"step": 3}\n')
    Writer(tmp_path, 3).close()
    assert capsys.readouterr().err == f"{path}: damaged lines are left out: 2\n"
    assert lines_of(tmp_path) == [{"step": 1}, {"step": 3}]


def test_a_metrics_file_that_cannot_be_read_is_named(tmp_path):
    (tmp_path / "metrics.jsonl").mkdir()
    with pytest.raises(UserError, match=r"cannot read .*metrics\.jsonl: Is a directory"):
        Writer(tmp_path, 0)


def test_a_run_without_metrics_has_no_lines(tmp_path):
    assert metrics_file.read_lines(tmp_path / "metrics.jsonl") == []


@pytest.mark.parametrize("full", ["metrics.jsonl", "tensorboard"])
def test_a_full_disk_is_named_and_closing_does_not_hide_it(tmp_path, full, capsys):
    writer = open_writer(tmp_path, 0, "tensorboard")
    if full == "metrics.jsonl":
        (tmp_path / full).unlink()
        (tmp_path / full).symlink_to("/dev/full")
    else:
        writer.trackers["tensorboard"].record.close()
        writer.trackers["tensorboard"].record = record_writer.RecordWriter("/dev/full")
    writes = [lambda: writer.write(1, loss=1.0), writer.flush]
    with pytest.raises(UserError, match=r"cannot write .*: No space left"):
        [write() for write in writes]
    writer.close()
    said = capsys.readouterr().err
    assert said.count("tensorboard lacks the last points: No space left") == (
        full != "metrics.jsonl"
    )
