"""Curves of several runs in one picture."""

import pytest

from pretrain.runtime.errors import UserError
from pretrain.training.reports.curves import draw_curves
from pretrain.training.reports.metrics_file import Writer


def run_of(folder, name):
    """A workdir with the metrics of a short run."""
    writer = Writer(folder / name, 0)
    for step in (1, 2):
        writer.write(step, loss=3.0 / step)
        writer.write(step, **{"held_out/loss": 4.0 / step, "held_out/unigram": 2.5})
    writer.close()
    return folder / name


def test_runs_are_drawn_together(tmp_path, monkeypatch):
    from matplotlib.axes import Axes

    drawn, plain = [], Axes.plot

    def spy(self, *args, **kwargs):
        drawn.append((kwargs["label"], *args[:2]))
        return plain(self, *args, **kwargs)

    monkeypatch.setattr(Axes, "plot", spy)
    draw_curves([run_of(tmp_path, "a"), run_of(tmp_path, "b")], tmp_path / "both.png")
    training, held_out = [3.0, 1.5], [4.0, 2.0]
    assert drawn == [
        ("a: training", [1, 2], training),
        ("a: held_out", [1, 2], held_out),
        ("b: training", [1, 2], training),
        ("b: held_out", [1, 2], held_out),
    ]
    assert (tmp_path / "both.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")


def test_a_run_without_metrics_cannot_be_drawn(tmp_path):
    with pytest.raises(UserError, match=r"none holds no metrics\.jsonl"):
        draw_curves([run_of(tmp_path, "a"), tmp_path / "none"], tmp_path / "both.png")
