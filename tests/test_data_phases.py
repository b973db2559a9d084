"""Phases: one layout's batches, then another's, at one position."""

import itertools

import numpy as np
import pytest

from pretrain import data
from pretrain.data.phases import Phases
from pretrain.data.stream import stream
from pretrain.errors import UserError
from tests import data_corpora

STEPS = 5


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return data_corpora.make(tmp_path_factory.mktemp("phases"), held_out=0.2)


def pairs(corpus, **fields):
    return data.build("pairs", corpus, **{"B": 8, "L": 32} | fields)


def build(corpus, steps=STEPS, **then):
    return Phases(pairs(corpus), pairs(corpus, **{"L": 64} | then), steps)


def assert_equal(one, other):
    assert one.keys() == other.keys()
    for key, value in one.items():
        np.testing.assert_array_equal(value, other[key])


def test_the_second_layout_begins_at_its_own_step_0_after_so_many_steps(corpus):
    layout, first, then = build(corpus), pairs(corpus), pairs(corpus, L=64)
    for step in range(STEPS):
        assert_equal(layout.batch(step), first.batch(step))
    for step in range(3 * then.steps_per_epoch):
        assert_equal(layout.batch(STEPS + step), then.batch(step))


def test_the_stream_goes_over_the_switch_from_any_step(corpus):
    lengths = [b["tokens_BL"].shape for _, b in itertools.islice(stream(build(corpus)), 8)]
    assert lengths == [(8, 32)] * STEPS + [(8, 64)] * 3
    for start in (0, STEPS - 1, STEPS, STEPS + 1):
        for offset, (step, batch) in enumerate(itertools.islice(stream(build(corpus), start), 3)):
            assert step == start + offset
            assert_equal(batch, build(corpus).batch(step))


def test_it_says_of_itself_what_the_second_layout_does(corpus):
    layout, then = build(corpus, B=4), pairs(corpus, L=64, B=4)
    assert (layout.B, layout.L, layout.shuffle) == (4, 64, True)
    assert layout.steps_per_epoch == then.steps_per_epoch


@pytest.mark.parametrize("B", [4, 8, 16])
def test_hosts_together_see_the_global_batch_of_either_phase(corpus, B):
    layout = build(corpus, B=B)
    for step, rows in ((STEPS - 1, 8), (STEPS, B)):
        whole = layout.batch(step)
        parts = [layout.batch(step, slice(h * B // 4, (h + 1) * B // 4)) for h in range(4)]
        assert [len(part["tokens_BL"]) for part in parts] == [rows // 4] * 4
        assert_equal({k: np.concatenate([part[k] for part in parts]) for k in whole}, whole)


def test_the_fingerprint_tells_what_a_position_depends_on(corpus):
    def of(steps=STEPS, first=(), then=()):
        one, other = pairs(corpus, **dict(first)), pairs(corpus, **{"L": 64, **dict(then)})
        return Phases(one, other, steps).fingerprint()

    assert of() == of()
    for changed in (dict(steps=6), dict(first={"seed": 1}), dict(then={"seed": 1})):
        assert of(**changed) != of(), changed


def test_no_first_step_and_layouts_that_end_are_refused(corpus):
    with pytest.raises(UserError, match="steps=0: the first phase"):
        build(corpus, steps=0)
    with pytest.raises(UserError, match="phases are for training"):
        build(corpus, split="held_out")
