"""Phases: one layout's batches, then another's, at one position."""

import itertools

import numpy as np
import pytest

from pretrain.data import batches
from pretrain.data.batches import phases
from pretrain.data.batches.loader import list_phases, read_training
from pretrain.data.batches.phases import Phases
from pretrain.runtime.errors import UserError
from tests.support.batch_text import assert_same_batch

STEPS = 5


def pairs(corpus, **fields):
    return batches.build("pairs", corpus, **{"B": 8, "L": 32} | fields)


def build(corpus, steps=STEPS, **then):
    return Phases(pairs(corpus), pairs(corpus, **{"L": 64} | then), steps)


def read(layout, start, count, rows=lambda layout: slice(None)):
    return list(itertools.islice(read_training(layout, start, rows), count))


@pytest.mark.parametrize("start", [0, STEPS - 1, STEPS, STEPS + 1])
def test_the_switch_is_exact_from_any_step(corpus, start):
    layout = build(corpus, B=4)
    for step, (own, batch) in enumerate(read(layout, start, 7), start):
        expected, at = (layout.first, step) if step < STEPS else (layout.then, step - STEPS)
        assert own is expected
        assert_same_batch(batch, expected.batch(at))
    assert list_phases(layout) == [layout.first, layout.then]


def test_a_single_layout_goes_on_for_ever(corpus):
    layout = pairs(corpus)
    last = layout.steps_per_epoch - 1
    for step, (own, batch) in enumerate(read(layout, last, 3), last):
        assert own is layout
        assert_same_batch(batch, layout.batch(step))
    assert list_phases(layout) == [layout]


def test_hosts_together_see_the_global_batch_of_either_phase(corpus):
    layout = build(corpus, B=4)
    hosts = [
        read(layout, STEPS - 1, 2, lambda data, h=h: slice(h * data.B // 4, (h + 1) * data.B // 4))
        for h in range(4)
    ]
    for (own, whole), *parts in zip(read(layout, STEPS - 1, 2), *hosts, strict=True):
        assert all(len(part["tokens_BL"]) == own.B // 4 for _, part in parts)
        assert_same_batch({k: np.concatenate([part[k] for _, part in parts]) for k in whole}, whole)


def test_the_fingerprint_tells_what_a_position_depends_on(corpus):
    def of(steps=STEPS, first=(), then=()):
        one, other = pairs(corpus, **dict(first)), pairs(corpus, **{"L": 64, **dict(then)})
        return Phases(one, other, steps).fingerprint()

    assert of() == of()
    for changed in (dict(steps=6), dict(first={"seed": 1}), dict(then={"seed": 1})):
        assert of(**changed) != of(), changed


def test_a_share_of_none_is_a_single_phase(corpus):
    fields = dict(name="pairs", B=8, L=32)
    first = dict(share=0.0, L=24, B=4)
    layout = phases.build_training(corpus, 0, 10, fields, first)
    assert layout.fingerprint() == pairs(corpus).fingerprint()
    assert [shapes.L for shapes in phases.configure_training(fields, first)] == [32]
    both = phases.build_training(corpus, 0, 10, fields, first | {"share": 0.4})
    assert (both.first.L, both.then.L, both.steps) == (24, 32, 4)
    with pytest.raises(UserError, match=r"first_phase\.share is missing"):
        phases.build_training(corpus, 0, 10, fields, {"L": 24})


def test_no_first_step_and_layouts_that_end_are_refused(corpus):
    with pytest.raises(UserError, match="steps=0: the first phase"):
        build(corpus, steps=0)
    with pytest.raises(UserError, match="phases are for training"):
        build(corpus, split="held_out")
