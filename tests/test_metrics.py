"""Sums stay sums until printed, and what was written once is neither lost nor repeated."""

import json
import math

import jax.numpy as jnp
import numpy as np
import pytest

from pretrain import metrics, plot
from pretrain.errors import UserError


def lines_of(workdir):
    return [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]


def test_a_mean_is_divided_once_over_all_batches():
    small, large = {"loss": (6.0, 2.0)}, {"loss": (1.0, 8.0)}
    values = metrics.means(metrics.add(metrics.add({}, small), large))
    assert values["loss"] == pytest.approx(0.7)  # the mean of the two means would be 1.5625
    assert values["perplexity"] == pytest.approx(math.exp(0.7))


def test_a_mean_over_nothing_is_zero_and_a_huge_loss_has_a_perplexity():
    assert metrics.means({"accuracy": (0.0, 0.0)}) == {"accuracy": 0.0}
    assert math.isfinite(metrics.means({"loss": (1e9, 1.0)})["perplexity"])


def test_a_histogram_becomes_what_the_best_constant_guess_costs():
    one, other = ({"unigram_V": (np.array(c), sum(c))} for c in ([3.0, 1, 0], [1.0, 1, 2]))
    values = metrics.means(metrics.add(one, other))
    assert values == {"unigram": pytest.approx(-sum(p * math.log(p) for p in (0.5, 0.25, 0.25)))}


def test_an_equal_histogram_costs_the_logarithm_of_its_size():
    assert metrics.means({"x_V": (np.ones(120), 120.0)})["x"] == pytest.approx(math.log(120))


def test_a_resumed_run_forgets_what_it_wrote_beyond_the_checkpoint(tmp_path):
    for step, steps in ((0, range(1, 6)), (3, range(4, 8))):
        writer = metrics.Writer(tmp_path, step)
        for each in steps:
            writer.write(each, loss=float(each), life=step)
        writer.close()
    assert [line["step"] for line in lines_of(tmp_path)] == list(range(1, 8))
    assert [line["life"] for line in lines_of(tmp_path)] == [0, 0, 0, 3, 3, 3, 3]


def test_a_resumed_run_forgets_a_line_cut_short(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"step": 1}\n{"step": 2}\n{"st')
    writer = metrics.Writer(tmp_path, 2)
    writer.write(3)
    writer.close()
    assert [line["step"] for line in lines_of(tmp_path)] == [1, 2, 3]


def test_every_line_is_strict_json(tmp_path):
    writer = metrics.Writer(tmp_path, 0)
    writer.write(1, loss=math.nan, norm=math.inf, lr=np.float32(0.5), event="skipped", batch=7)
    writer.close()
    line = json.loads((tmp_path / "metrics.jsonl").read_text(), parse_constant=pytest.fail)
    assert line == {"step": 1, "loss": None, "norm": None, "lr": 0.5, "event": "skipped"} | {
        "batch": 7
    }


@pytest.mark.parametrize("end", ['{"step": 3', '{"step": 3\n', ""])
def test_a_last_line_cut_short_is_left_out(tmp_path, end):
    (tmp_path / "m").write_text('{"step": 1}\n{"step": 2}\n' + end)
    assert metrics.read_lines(tmp_path / "m") == [{"step": 1}, {"step": 2}]


def test_any_other_broken_line_is_named(tmp_path):
    (tmp_path / "m").write_text('{"step": 1}\n{"st\n{"step": 3}\n')
    with pytest.raises(UserError, match="line 2: not JSON"):
        metrics.read_lines(tmp_path / "m")


def test_a_run_without_metrics_has_no_lines(tmp_path):
    assert metrics.read_lines(tmp_path / "metrics.jsonl") == []


def step_sums(loss, in_a_row=0):
    return {"loss": (jnp.float32(loss), 1.0), "in_a_row": (jnp.int32(in_a_row), 1)}


def take(meter, sums):
    with meter.waiting():
        pass
    return meter.add(sums)


def test_the_meter_looks_at_each_step_once_and_one_step_late():
    meter = metrics.Meter()
    assert take(meter, step_sums(1)) is None
    assert [float(take(meter, step_sums(n))["loss"][0]) for n in (2, 3)] == [1, 2]
    last = meter.add(None)
    assert last is not None
    assert float(last["loss"][0]) == 3
    assert meter.add(None) is None


def test_the_meter_loses_no_step_between_two_readings():
    meter, means = metrics.Meter(), []
    for n in range(1, 7):
        take(meter, step_sums(n))
        if n % 3 == 0:
            meter.add(None)
            means.append(meter.read()[0]["loss"])
    assert means == [2.0, 5.0]


def test_the_meter_leaves_skipped_steps_out():
    meter = metrics.Meter()
    for loss, in_a_row in ((2, 0), (math.nan, 1), (math.nan, 2), (4, 0)):
        take(meter, step_sums(loss, in_a_row))
    meter.add(None)
    assert meter.read()[0]["loss"] == 3.0
    take(meter, step_sums(math.nan, 1))
    meter.add(None)
    assert meter.read()[0] == {}


def run_of(folder, name):
    """A workdir with the metrics of a short run."""
    writer = metrics.Writer(folder / name, 0)
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
    plot.curves([run_of(tmp_path, "a"), run_of(tmp_path, "b")], tmp_path / "both.png")
    training, held_out = [3.0, 1.5], [4.0, 2.0]
    assert drawn == [
        ("a: training", [1, 2], training), ("a: held_out", [1, 2], held_out),
        ("b: training", [1, 2], training), ("b: held_out", [1, 2], held_out),
    ]  # fmt: skip
    assert (tmp_path / "both.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")


def test_a_run_without_metrics_cannot_be_drawn(tmp_path):
    with pytest.raises(UserError, match=r"none holds no metrics\.jsonl"):
        plot.curves([run_of(tmp_path, "a"), tmp_path / "none"], tmp_path / "both.png")
