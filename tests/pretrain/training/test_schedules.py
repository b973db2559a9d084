"""Rates are the originals' and their formulas."""

import json
import math
import pathlib

import numpy as np
import pytest

from pretrain.runtime.errors import UserError
from pretrain.training import schedules

GOLDEN = json.loads((pathlib.Path(__file__).parents[2] / "fixtures" / "golden.json").read_text())[
    "lr"
]

SCHEDULES = {
    "xlnet": dict(lr=4e-4, steps=500_000, warmup=40_000, end_factor=0.001),
    "bert": dict(lr=1e-4, steps=1_000_000, warmup=10_000, join="switch"),
    "gpt1": dict(lr=1.0, steps=1000, warmup=2, join="product"),
    "stlr": dict(lr=0.01, steps=1000, decay="slanted"),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_rates_are_the_original_s(name):
    section = SCHEDULES[name]
    rate = schedules.Schedule(**section)
    for step, expected in GOLDEN[name].items():
        step = round(float(step) * (1000 if name == "gpt1" else 1))
        np.testing.assert_allclose(rate(step), expected, rtol=2e-6, atol=1e-7 * section["lr"])


@pytest.mark.parametrize("decay", ["constant", "linear", "slanted"])
@pytest.mark.parametrize("warmup", [0, 9, 10, 30])
def test_a_rate_that_never_reaches_its_peak_has_a_note(warmup, decay):
    rate = schedules.Schedule(lr=0.5, steps=10, warmup=warmup, decay=decay)
    note = f"optim.warmup={warmup} of 10 steps: the rate never reaches optim.lr"
    reaches = max(float(rate(step)) for step in range(10)) == pytest.approx(0.5)
    assert rate.list_notes() == ([] if reaches else [note])


def test_cosine_rsqrt_and_constant_are_their_formulas():
    make = lambda decay, **more: schedules.Schedule(lr=2, steps=100, warmup=20, decay=decay, **more)  # noqa: E731
    for step in (20, 47, 100):
        done = (step - 20) / 80
        cosine = 2 * (0.1 + 0.9 * (1 + math.cos(math.pi * done)) / 2)
        np.testing.assert_allclose(make("cosine", end_factor=0.1)(step), cosine, rtol=1e-6)
        np.testing.assert_allclose(make("rsqrt")(step), 2 * math.sqrt(20 / step), rtol=1e-6)
        assert make("constant")(step) == 2
    assert all(make(decay)(10) == 1 for decay in ("cosine", "rsqrt", "constant", "linear"))


def test_a_decay_may_end_before_the_run_does():
    rate = schedules.Schedule(
        lr=2, steps=100, warmup=10, decay="cosine", end_factor=0.1, decay_steps=60
    )
    halfway = schedules.Schedule(lr=2, steps=60, warmup=10, decay="cosine", end_factor=0.1)
    for step in (0, 5, 10, 35, 59):
        assert rate(step) == halfway(step)
    np.testing.assert_allclose([rate(60), rate(80), rate(100)], 0.2, rtol=1e-6)


def test_an_unknown_decay_is_refused():
    with pytest.raises(UserError, match="decay='lineal'"):
        schedules.Schedule(lr=1, steps=1, decay="lineal")


def test_each_stage_has_a_slanted_triangle_of_its_own():
    whole = dict(lr=2, decay="slanted", stlr_ratio=8.0)
    rate = schedules.Schedule(
        steps=60, stages=(1.0, 1.0, 4.0), stlr_cut_frac=(0.3, 0.3, 0.125), **whole
    )
    assert rate.stage_begins() == [0, 10, 20]
    parts = [(10, 0.3), (10, 0.3), (40, 0.125)]
    alone = [schedules.Schedule(steps=n, stlr_cut_frac=cut, **whole) for n, cut in parts]
    expected = [part(step) for part in alone for step in range(part.steps)]
    np.testing.assert_allclose([rate(step) for step in range(60)], expected, rtol=1e-6)
    assert rate(3) == rate(13) == rate(25) == 2  # the peaks


def test_shares_of_stages_that_there_are_not_are_refused():
    with pytest.raises(UserError, match="one for each of the stages"):
        schedules.Schedule(lr=1, steps=9, stages=(1, 2), stlr_cut_frac=(0.1, 0.1, 0.1))
