"""Each way of choosing, against the same done slowly and one at a time."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pretrain.inference.sampling import Sampler, draw_ids, keep_nucleus, scale_logits, take_top_k
from pretrain.runtime.errors import UserError
from tests.support.compiler import quick_jit

B, V = 3, 23
LOGITS_BV = np.random.default_rng(0).normal(0, 2, (B, V)).astype(np.float32)
LOGITS_BV[1, 4:9] = LOGITS_BV[1].max()  # equals at the top
DRAWS = 4000


def probabilities(scores: dict[int, float]) -> dict[int, float]:
    weights = {token: np.exp(score) for token, score in scores.items()}
    return {token: weight / sum(weights.values()) for token, weight in weights.items()}


def by_hand(logits_V, temperature: float, k: int, p: float) -> np.ndarray:
    """[V]: the probabilities of tokens: temperature, then k, then p, one token at a time."""
    ranked = sorted(range(V), key=lambda token: (-logits_V[token], token))
    left = probabilities({t: np.float64(logits_V[t]) / temperature for t in ranked[: k or V]})
    kept: list[int] = []
    for token in left:
        if not kept or sum(left[t] for t in kept) < p:
            kept.append(token)
    whole = sum(left[t] for t in kept)
    return np.array([left[t] / whole if t in kept else 0.0 for t in range(V)])


def shares(sampler: Sampler) -> np.ndarray:
    """[B, V]: how often each token is chosen, of DRAWS for each row."""
    rows_BV = jnp.repeat(LOGITS_BV, DRAWS, axis=0)
    choose = quick_jit(sampler)
    chosen_B = choose(rows_BV, jax.random.key(1), jnp.zeros(len(rows_BV), jnp.int32))
    counts = [np.bincount(row, minlength=V) for row in np.reshape(chosen_B, (B, DRAWS))]
    return np.stack(counts) / DRAWS


@pytest.mark.parametrize(
    ("temperature", "k", "p"),
    [(1, 0, 1), (0.5, 0, 1), (2, 0, 0.9), (1, 5, 1), (0.7, 6, 0.8), (3, 4, 0.6), (1, V + 9, 1)],
)
def test_tokens_come_as_often_as_counted_by_hand(temperature, k, p):
    expected_BV = np.stack([by_hand(logits_V, temperature, k, p) for logits_V in LOGITS_BV])
    found_BV = shares(Sampler(temperature, k, p))
    assert not found_BV[expected_BV == 0].any()
    deviation_BV = np.sqrt(expected_BV * (1 - expected_BV) / DRAWS)
    assert (np.abs(found_BV - expected_BV) <= 5 * deviation_BV + 1e-3).all()


@pytest.mark.parametrize("p", [1e-6, 0.3, 0.9, 0.99])
def test_the_nucleus_is_the_fewest_tokens_that_reach_the_mass(p):
    logits_BV, ids_BV = take_top_k(LOGITS_BV, V)
    kept_BV = np.isfinite(keep_nucleus(logits_BV, p))
    for row in range(B):
        expected = np.flatnonzero(by_hand(LOGITS_BV[row], 1, 0, p))
        assert sorted(ids_BV[row][kept_BV[row]].tolist()) == expected.tolist()


def test_a_nucleus_never_is_empty():
    sure_Bk = jnp.array([[50.0, 0.0, 0.0]])
    assert np.isfinite(keep_nucleus(sure_Bk, 1e-9)).tolist() == [[True, False, False]]


def test_a_temperature_next_to_nothing_is_greedy_and_finite():
    assert np.isfinite(scale_logits(LOGITS_BV, 1e-30)).all()
    assert shares(Sampler(1e-30))[0, LOGITS_BV[0].argmax()] == 1


@pytest.mark.parametrize("sampler", [Sampler(temperature=0), Sampler(top_k=1)])
def test_greedy_takes_the_first_of_the_best(sampler):
    chosen_B = sampler(jnp.array(LOGITS_BV), jax.random.key(0), jnp.arange(B))
    np.testing.assert_array_equal(chosen_B, LOGITS_BV.argmax(-1))
    assert chosen_B.dtype == jnp.int32


# --- randomness ------------------------------------------------------------------------------


def many(logits_BV, seed=0, places_B=None):
    """[B, 64]: draws at 64 places that follow each row's own."""
    starts_B = jnp.zeros(len(logits_BV), jnp.int32) if places_B is None else places_B
    draw = quick_jit(jax.vmap(lambda i: draw_ids(logits_BV, jax.random.key(seed), starts_B + i)))
    return np.asarray(draw(jnp.arange(64))).T


def test_a_draw_does_not_depend_on_the_other_rows():
    whole = many(LOGITS_BV)
    np.testing.assert_array_equal(many(LOGITS_BV[:2]), whole[:2])
    others = LOGITS_BV.copy()
    others[:2] = 0
    np.testing.assert_array_equal(many(others)[2], whole[2])


def test_a_draw_depends_on_seed_row_and_place():
    equal_BV = np.zeros((2, V), np.float32)
    drawn_BL = many(equal_BV)
    assert (drawn_BL[0] != drawn_BL[1]).sum() > 32
    assert (drawn_BL != many(equal_BV, seed=1)).sum() > 64
    assert len(set(drawn_BL[0].tolist())) > V // 2
    np.testing.assert_array_equal(
        many(equal_BV, places_B=jnp.array([1, 0]))[0, :-1], drawn_BL[0, 1:]
    )


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", -1.0),
        ("temperature", float("nan")),
        ("top_k", -1),
        ("top_p", 0.0),
        ("top_p", 1.5),
        ("temperature", float("inf")),
    ],
)
def test_a_number_out_of_range_is_named(field, value):
    with pytest.raises(UserError, match=f"{field}={value}"):
        Sampler(**{field: value})
