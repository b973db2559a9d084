"""Each row's vector is told by its valid states alone."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from modules.layers import pooling
from modules.layers.pooling import KINDS, Pool
from tests.support.compiler import quick_jit

VALID_BL = np.array(
    [[1, 1, 1, 1], [1, 1, 0, 0], [0, 0, 1, 1], [0, 1, 0, 1], [0, 0, 1, 0], [0, 0, 0, 0]], bool
)
EMPTY = 5  # the row in which nothing is valid
B, L = VALID_BL.shape
D = 6
WIDTHS = {"concat": 3 * D}
WAYS = [*((kind, 1) for kind in KINDS), ("attention", 3), ("tanh_attention", D)]


def draw(seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(-1, 2, (B, L, D)).astype("f"), rng.normal(0, 1, (D, D)).astype("f")


def pool(kind, H, queries=None):
    params = {"query_HD": queries[:H]} if "attention" in kind else {}
    return lambda h_BLD, valid_BL=VALID_BL: Pool(kind, H).apply({"params": params}, h_BLD, valid_BL)


def attended(h_LD, queries_HD, squash):
    """Head by head, in float64."""
    K, pieces = D // len(queries_HD), []
    for i, query_D in enumerate(queries_HD.astype(float)):
        scores_L = (np.tanh(h_LD) if squash else h_LD) @ query_D
        share_L = np.exp(scores_L - scores_L.max())
        pieces.append(share_L / share_L.sum() @ h_LD[:, i * K : (i + 1) * K])
    return np.concatenate(pieces)


def by_hand(kind, h_LD, queries_HD):
    """One row, of which only the valid states are given."""
    h_LD = h_LD.astype(float)
    return {
        "first": lambda: h_LD[0],
        "last": lambda: h_LD[-1],
        "mean": lambda: h_LD.mean(0),
        "max": lambda: h_LD.max(0),
        "concat": lambda: np.concatenate([h_LD[-1], h_LD.max(0), h_LD.mean(0)]),
        "attention": lambda: attended(h_LD, queries_HD, squash=False),
        "tanh_attention": lambda: np.tanh(attended(h_LD, queries_HD, squash=True)),
    }[kind]()


@pytest.mark.parametrize(("kind", "H"), WAYS)
def test_vectors_are_the_definitions_over_valid_states_or_zeros(kind, H):
    h_BLD, queries = draw()
    found_BD = quick_jit(pool(kind, H, queries))(h_BLD)
    assert found_BD.shape == (B, WIDTHS.get(kind, D))
    assert not found_BD[EMPTY].any()
    for b in set(range(B)) - {EMPTY}:
        wanted_D = by_hand(kind, h_BLD[b, VALID_BL[b]], queries[:H])
        np.testing.assert_allclose(found_BD[b], wanted_D, atol=1e-5)


@pytest.mark.parametrize(("kind", "H"), WAYS)
def test_what_stands_at_padding_changes_no_bit_and_gets_no_gradient(kind, H):
    h_BLD, queries = draw()
    other_BLD = np.where(VALID_BL[..., None], h_BLD, np.nan).astype("f")
    run = pool(kind, H, queries)
    loss = lambda h_BLD: (jnp.square(h_BD := run(h_BLD)).sum(), h_BD)  # noqa: E731
    differentiate = quick_jit(jax.grad(loss, has_aux=True))
    grads_BLD, found_BD = differentiate(other_BLD)
    np.testing.assert_array_equal(differentiate(h_BLD)[1], found_BD)
    assert np.isfinite(grads_BLD).all()
    assert not grads_BLD[~VALID_BL].any()
    assert grads_BLD[VALID_BL].any()


def test_queries_get_finite_gradients_of_rows_with_and_without_states():
    h_BLD, queries = draw()
    grad = quick_jit(jax.grad(lambda q: jnp.square(pooling.attention(h_BLD, VALID_BL, q)).sum()))
    assert np.isfinite(grad(queries)).all()
    assert np.abs(grad(queries)).max() > 0.01
    only = h_BLD[EMPTY:], VALID_BL[EMPTY:]
    assert not quick_jit(jax.grad(lambda q: pooling.attention(*only, q).sum()))(queries).any()


@pytest.mark.parametrize("kind", KINDS)
def test_none_for_valid_means_all(kind):
    h_BLD, queries = draw()
    run = quick_jit(pool(kind, 1, queries))
    np.testing.assert_array_equal(run(h_BLD, None), run(h_BLD, np.ones((B, L), bool)))
    assert (run(h_BLD, None) != run(h_BLD)).any()


def test_attention_begins_as_the_average_and_every_head_learns():
    h_BLD, _ = draw()
    model = Pool("attention", H=3)
    found_BD, params = model.init_with_output(jax.random.key(0), h_BLD, VALID_BL)
    np.testing.assert_allclose(found_BD, pooling.mean(h_BLD, VALID_BL), atol=1e-6)
    assert params["params"]["query_HD"].shape == (3, D)
    grads = jax.grad(lambda p: jnp.square(model.apply(p, h_BLD, VALID_BL)).sum())(params)
    assert (np.abs(grads["params"]["query_HD"]).max(1) > 0.01).all()


@pytest.mark.parametrize(("kind", "H"), [("mean", 1), ("tanh_attention", 3)])
def test_vectors_keep_the_states_dtype(kind, H):
    h_BLD, queries = draw()
    half_BLD = jnp.asarray(h_BLD, jnp.bfloat16)
    run = pool(kind, H, queries)
    found_BD, whole_BD = run(half_BLD), run(half_BLD.astype("float32"))
    assert found_BD.dtype == jnp.bfloat16
    np.testing.assert_allclose(found_BD.astype("float32"), whole_BD, atol=0.08)


def test_averages_whose_sum_half_precision_cannot_hold_are_right():
    h_BLD = jnp.full((1, 4096, 1), 30, jnp.float16)
    assert pooling.mean(h_BLD, jnp.ones((1, 4096), bool)) == 30


def test_the_last_positions_are_counted_among_the_valid():
    expected_BL = np.array(
        [[0, 0, 1, 1], [1, 1, 0, 0], [0, 0, 1, 1], [0, 1, 0, 1], [0, 0, 1, 0], [0] * 4], bool
    )
    np.testing.assert_array_equal(pooling.keep_last(jnp.asarray(VALID_BL), 2), expected_BL)
    np.testing.assert_array_equal(pooling.keep_last(VALID_BL, 0), VALID_BL)


LAYERS = {"last_two": (-2, -1), "first_last": (1, -1), "mean": (-1, -1)}


@pytest.mark.parametrize("kind", LAYERS)
def test_layers_are_averaged_over_their_valid_states(kind):
    h_NBLD = np.stack([draw(seed)[0] for seed in range(4)])
    at_padding = np.where(VALID_BL[..., None], h_NBLD, np.nan)
    found_BD = pooling.pool_layers(kind, at_padding, VALID_BL)
    assert not found_BD[EMPTY].any()
    for b in set(range(B)) - {EMPTY}:
        wanted_D = h_NBLD[list(LAYERS[kind]), b][:, VALID_BL[b]].astype(float).mean((0, 1))
        np.testing.assert_allclose(found_BD[b], wanted_D, atol=1e-6)


def test_what_cannot_be_is_refused():
    with pytest.raises(ValueError, match=r"pool='median' is none of first, .*, first_last"):
        pooling.pool_layers("median", np.ones((2, 1, 1, 1)), np.ones((1, 1), bool))
    h_BLD, _ = draw()
    with pytest.raises(ValueError, match="kind='median' is none of first, last, mean, max"):
        Pool("median")
    with pytest.raises(ValueError, match="D=6 does not divide over H=4 heads"):
        Pool("attention", H=4).init(jax.random.key(0), h_BLD)
