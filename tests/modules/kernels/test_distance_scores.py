"""A query meets the distance to its key, whatever the shift is made of."""

import jax.numpy as jnp
import numpy as np
import pytest

from modules.kernels import distance_scores, relative_shift
from modules.kernels.distance_scores import RelativeTerms
from modules.masks import Mask, make_view
from tests.support.kernel_cases import Case, assert_is_reference, every_form

B, H, K, M = 2, 3, 4, 5


def draw(L, seed=0, by_example=False):
    rng = np.random.default_rng(seed)
    rows = (B, M + 2 * L) if by_example else (M + 2 * L,)
    q_BLHK = rng.normal(0, 1, (B, L, H, K)).astype(np.float32)
    return q_BLHK, rng.normal(0, 1, (*rows, H, K)).astype(np.float32)


def pair_by_pair(q_BLHK, r):
    """Row 0 of the table is distance M + L - 1; each further row is one less."""
    L = q_BLHK.shape[1]
    r_BRHK = np.broadcast_to(r, (B, *r.shape[-3:]))
    scores = np.zeros((B, H, L, M + L))
    for b, h, i, j in np.ndindex(*scores.shape):
        distance = (M + i) - j
        scores[b, h, i, j] = q_BLHK[b, i, h] @ r_BRHK[b, (M + L - 1) - distance, h]
    return scores


@pytest.mark.parametrize("by_example", [False, True])
@pytest.mark.parametrize(("L", "block"), [(6, 128), (6, 3), (6, 2), (6, 1), (7, 3), (1, 1)])
def test_every_pair_meets_its_distance_in_blocks_of_any_size(L, block, by_example):
    q_BLHK, r = draw(L, by_example=by_example)
    found = distance_scores.score_distances(q_BLHK, r, None, block)
    np.testing.assert_allclose(found, pair_by_pair(q_BLHK, r), atol=1e-5)


@pytest.mark.parametrize("by_example", [False, True])
def test_slots_are_rows_of_the_whole_in_any_order_and_repeated(by_example):
    q_BLHK, r = draw(6, by_example=by_example)
    slots_BP = np.array([[5, 0, 3, 3], [2, 5, 1, 0]])
    q_BPHK = np.take_along_axis(q_BLHK, slots_BP[..., None, None], axis=1)
    rows = np.take_along_axis(pair_by_pair(q_BLHK, r), slots_BP[:, None, :, None], axis=2)
    np.testing.assert_allclose(
        distance_scores.score_distances_at(q_BPHK, r, None, slots_BP, 6), rows, atol=1e-5
    )


SLOTS_BP = np.random.default_rng(0).integers(0, 6, (8, 2))
CASE = Case(
    lambda a: distance_scores.score_distances_at(a["q_BPHK"], a["r_RHK"], None, SLOTS_BP, 6),
    lambda a: distance_scores.reference(a["q_BPHK"], a["r_RHK"], None, SLOTS_BP, 6),
    {
        "q_BPHK": np.random.default_rng(1).normal(size=(8, 2, 2, 4)),
        "r_RHK": np.random.default_rng(2).normal(size=(16, 2, 4)),
    },
    (distance_scores, relative_shift),
)


@every_form(CASE)
def test_values_and_gradients_are_the_reference_s(form, devices, monkeypatch):
    assert_is_reference(CASE, form, devices, monkeypatch)


VIEW = make_view(Mask(), 6, 10, slots_BP=SLOTS_BP, segments_BJ=np.arange(80).reshape(8, 10) % 3)
NAMES = ("position_HK", "segment_HK", "other_HK")
BACKWARD_B = np.arange(8) % 3 == 1


def score_two(a, score):
    content_HK = jnp.ones((2, 4))  # which no distance meets
    terms = [a[name] for name in NAMES]
    relative = RelativeTerms(content_HK, *terms, a["r_ZRHK"], BACKWARD_B)
    return score(relative, a["q_BPHK"], VIEW)


def score_each(relative, q_BPHK, view):
    """Scores each row with the distances of its direction alone."""
    rows = [relative._replace(r=relative.r[int(n)], backward_B=None) for n in BACKWARD_B]
    scores = [x.score(q_BPHK, view)[n] for n, x in enumerate(rows)]
    return jnp.stack(scores)


TWO = CASE._replace(
    fast=lambda a: score_two(a, RelativeTerms.score),
    reference=lambda a: score_two(a, score_each),
    arrays={"q_BPHK": CASE.arrays["q_BPHK"]}
    | {name: np.random.default_rng(n).normal(size=(2, 4)) for n, name in enumerate(NAMES)}
    | {"r_ZRHK": np.random.default_rng(9).normal(size=(2, 16, 2, 4))},
)


@every_form(TWO)
def test_a_row_s_slots_meet_the_distances_of_its_direction(form, devices, monkeypatch):
    assert_is_reference(TWO, form, devices, monkeypatch)
