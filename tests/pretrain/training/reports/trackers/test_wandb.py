"""Both lives of a run are one at Weights & Biases, which cannot end it."""

import sys

import pytest

from pretrain.runtime.errors import UserError
from pretrain.training.reports import metrics_file
from pretrain.training.reports.totals import Totals
from tests.support.tracking_service import check_two_lives, open_writer

pytest_plugins = ["tests.support.tracking_service"]


def test_a_resumed_run_goes_on_under_its_id(service, tmp_path):
    check_two_lives(service, "wandb", tmp_path)


def test_a_tracker_gets_the_totals_too(service, tmp_path):
    writer = open_writer(tmp_path, 0, "wandb")
    writer.totals = Totals(lambda: 0.0)
    writer.totals.add(1 << 24, 2.0)
    writer.write(1, loss=0.5, batch=3)
    spent = {"tokens": 2.0**24, "flops": 2.0, "seconds": 0.0}
    assert service.logged == [{"step": 1, "loss": 0.5, **spent}]


def test_a_tracker_that_fails_is_named_and_left_out(service, tmp_path, monkeypatch, capsys):
    writer = open_writer(tmp_path, 0, "wandb", "tensorboard")
    monkeypatch.setattr(service, "log", lambda values: 1 / 0)
    for step in (1, 2):
        writer.write(step, loss=0.5)
    assert len(metrics_file.read_lines(tmp_path / "metrics.jsonl")) == 2
    assert capsys.readouterr().err.count("wandb fails, and the run goes on without it") == 1


@pytest.mark.parametrize("error", [RuntimeError("no key"), OSError("no route")])
def test_a_tracker_that_cannot_begin_is_named_and_left_out(
    service, tmp_path, monkeypatch, capsys, error
):
    def fail(**_options):
        raise error

    monkeypatch.setattr(service, "init", fail)
    writer = open_writer(tmp_path, 0, "wandb", "tensorboard")
    assert [*writer.trackers] == ["tensorboard"]
    assert f"wandb fails, and the run goes on without it: {error}" in capsys.readouterr().err


def test_a_tracker_that_is_not_there_is_refused(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(UserError, match=r"wandb cannot be imported .* pip install wandb"):
        open_writer(tmp_path, 0, "wandb")
    with pytest.raises(
        UserError, match=r"train\.trackers.*no .*\.nope .*mlflow, tensorboard, wandb"
    ):
        open_writer(tmp_path, 0, "nope")
