"""Likelihoods, gradients and decoding are those of a sum over all paths."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from modules.activation_sharding import sharding_context
from modules.heads import crf
from modules.heads.crf import CRF, Chain
from pretrain.distributed.sharding import Layout, make_mesh
from tests.support.compiler import quick_jit

L, C = 5, 3
ROWS = {  # what is valid
    "whole": [1, 1, 1, 1, 1],
    "padded right": [1, 1, 1, 0, 0],
    "padded left": [0, 0, 1, 1, 1],
    "with gaps": [1, 0, 1, 0, 1],
    "of one": [0, 0, 1, 0, 0],
    "of none": [0, 0, 0, 0, 0],
}
VALID_BL = np.array(list(ROWS.values()), bool)
B = len(ROWS)
ALLOWED = Chain(  # tag 2 neither begins nor follows 0; 1 does not end
    np.array([1, 1, 0], bool),
    np.array([1, 0, 1], bool),
    np.array([[1, 1, 0], [1, 1, 1], [1, 1, 1]], bool),
)
likelihood = quick_jit(crf.log_likelihood)
decode = quick_jit(crf.viterbi)
loss = quick_jit(crf.loss)


def draw(seed=0, rows=B, length=L, tags=C):
    rng = np.random.default_rng(seed)
    chain = Chain(*(rng.normal(0, 1, s).astype("f") for s in (tags, tags, (tags, tags))))
    emissions_BLC = rng.normal(0, 2, (rows, length, tags)).astype("f")
    return emissions_BLC, chain, rng.integers(0, tags, (rows, length))


def score(x_LC, chain, path):
    """Of one path through these positions, in float64."""
    if not len(path):
        return 0.0
    own = sum(float(x_LC[i, tag]) for i, tag in enumerate(path))
    moves = sum(float(chain.transition_CC[pair]) for pair in itertools.pairwise(path))
    return own + moves + float(chain.start_C[path[0]]) + float(chain.end_C[path[-1]])


def legal(path, allowed):
    ends = not path or (allowed.start_C[path[0]] and allowed.end_C[path[-1]])
    return ends and all(allowed.transition_CC[pair] for pair in itertools.pairwise(path))


def paths(x_LC, chain, allowed=None):
    """Every path that is allowed, and its score."""
    every = itertools.product(range(x_LC.shape[1]), repeat=len(x_LC))
    kept = [path for path in every if allowed is None or legal(path, allowed)]
    return kept, np.array([score(x_LC, chain, path) for path in kept])


def log_sum(scores):
    return np.log(np.exp(scores - scores.max()).sum()) + scores.max()


@pytest.mark.parametrize("allowed", [None, ALLOWED], ids=["free", "constrained"])
def test_likelihood_is_the_tags_share_among_all_allowed_paths(allowed):
    x_BLC, chain, tags_BL = draw()
    tags_BL = np.zeros_like(tags_BL) if allowed else tags_BL  # all 0: allowed
    limited = crf.forbid(chain, allowed) if allowed else chain
    found_B = likelihood(x_BLC, tags_BL, limited, VALID_BL)
    for b, valid_L in enumerate(VALID_BL):
        own = score(x_BLC[b, valid_L], chain, tuple(tags_BL[b, valid_L]))
        wanted = own - log_sum(paths(x_BLC[b, valid_L], chain, allowed)[1])
        np.testing.assert_allclose(found_B[b], wanted, atol=1e-5, err_msg=list(ROWS)[b])


@pytest.mark.parametrize("allowed", [None, ALLOWED], ids=["free", "constrained"])
def test_the_decoded_path_is_the_best_of_all_that_are_allowed(allowed):
    x_BLC, chain, _ = draw(3)
    tags_BL, score_B = decode(x_BLC, crf.forbid(chain, allowed) if allowed else chain, VALID_BL)
    for b, valid_L in enumerate(VALID_BL):
        every, scores = paths(x_BLC[b, valid_L], chain, allowed)
        assert tuple(tags_BL[b, valid_L]) == every[scores.argmax()]
        np.testing.assert_allclose(score_B[b], scores.max(), atol=1e-5)
    assert tags_BL.dtype == jnp.int32
    assert not tags_BL[~VALID_BL].any()


def test_of_equally_good_paths_the_one_lowest_from_its_end_is_decoded():
    rng, ties = np.random.default_rng(6), 0
    chain = Chain(*(rng.integers(0, 2, s).astype("f") for s in (C, C, (C, C))))
    x_BLC = rng.integers(0, 2, (B, L, C)).astype("f")
    tags_BL, score_B = decode(x_BLC, chain, VALID_BL)
    for b, valid_L in enumerate(VALID_BL):
        every, scores = paths(x_BLC[b, valid_L], chain)
        best = [path for path, s in zip(every, scores, strict=True) if s == scores.max()]
        assert tuple(tags_BL[b, valid_L]) == min(best, key=lambda path: path[::-1])
        assert score_B[b] == scores.max()
        ties += len(best) > 1
    assert ties >= 3


def test_where_all_paths_are_forbidden_the_one_with_fewest_offences_is_decoded():
    x_BLC, chain, _ = draw(7, rows=B)
    walls = np.zeros((C, C), bool)
    walls[2, 1] = walls[1, 2] = True  # 2 to 1 to 2 is the only way; and nothing may begin
    allowed = Chain(np.zeros(C, bool), np.array([0, 1, 0], bool), walls)
    tags_BL, score_B = decode(x_BLC, crf.forbid(chain, allowed), np.ones((B, L), bool))
    np.testing.assert_array_equal(tags_BL, [[1, 2, 1, 2, 1]] * B)
    assert np.isfinite(score_B).all()


def test_forbidden_tags_have_a_loud_but_finite_loss_and_finite_gradients():
    x_BLC, chain, tags_BL = draw(8)
    tags_BL = np.full_like(tags_BL, 2)
    with_chain = lambda chain: crf.loss(x_BLC, tags_BL, crf.forbid(chain, ALLOWED), VALID_BL).total  # noqa: E731
    total, grads = quick_jit(jax.value_and_grad(with_chain))(chain)
    assert 1e29 < total < 1e33
    assert all(np.isfinite(x).all() for x in grads)
    assert grads.start_C[2] == grads.transition_CC[0, 2] == grads.end_C[1] == 0


def test_padding_and_gaps_change_no_bit():
    """Nor does what stands there, be it NaN or a tag that there is not."""
    x_BLC, chain, tags_BL = draw(9)
    x_BLC[~VALID_BL], tags_BL = np.nan, np.where(VALID_BL, tags_BL, -100)
    found_B = likelihood(x_BLC, tags_BL, chain, VALID_BL)
    tags, scores = decode(x_BLC, chain, VALID_BL)
    grad = quick_jit(jax.grad(lambda x, y, v: crf.loss(x, y, chain, v).total))
    grads_BLC = grad(x_BLC, tags_BL, VALID_BL)
    for b, valid_L in enumerate(VALID_BL[:-1]):
        n = valid_L.sum()
        x, y = (np.repeat(a[b : b + 1, valid_L], B, 0) for a in (x_BLC, tags_BL))
        whole = np.ones((B, n), bool)
        assert found_B[b] == likelihood(x, y, chain, whole)[b]
        tags_alone, scores_alone = decode(x, chain, whole)
        np.testing.assert_array_equal(tags[b, valid_L], tags_alone[b])
        assert scores[b] == scores_alone[b]
        np.testing.assert_array_equal(grads_BLC[b, valid_L], grad(x, y, whole)[b])
    assert not grads_BLC[~VALID_BL].any()


def test_likelihoods_of_long_rows_keep_their_digits():
    """Their partitions are 4000 nats and more, of which float32 knows no ten-thousandth."""
    x_BLC, chain, tags_BL = draw(10, rows=2, length=512, tags=7)
    x_BLC *= 3
    for b in range(2):  # row 0: tags that fit, so that its loss is small; row 1: as drawn
        tags_BL[b] = x_BLC[b].argmax(-1) if b == 0 else tags_BL[b]
    x_BLC[0] += 9 * np.eye(7, dtype="f")[tags_BL[0]]
    found_B = likelihood(x_BLC, tags_BL, chain, np.ones((2, 512), bool))
    x64_BLC, chain64 = x_BLC.astype(float), Chain(*(x.astype(float) for x in chain))
    for b in range(2):
        alpha_C = chain64.start_C + x64_BLC[b, 0]
        for x_C in x64_BLC[b, 1:]:
            alpha_C = np.logaddexp.reduce(alpha_C[:, None] + chain64.transition_CC, 0) + x_C
        partition = np.logaddexp.reduce(alpha_C + chain64.end_C)
        wanted = score(x64_BLC[b], chain64, tuple(tags_BL[b])) - partition
        assert partition > 4000
        np.testing.assert_allclose(found_B[b], wanted, rtol=1e-6, atol=1e-4)


def test_the_backward_pass_keeps_no_matrix_of_tags_for_each_position():
    x_BLC, chain, tags_BL = draw(rows=4, length=64, tags=37)
    grad = jax.jit(jax.grad(lambda x_BLC: crf.loss(x_BLC, tags_BL, chain).total))
    memory = grad.lower(x_BLC).compile().memory_analysis()
    assert 0 < memory.temp_size_in_bytes < 0.3 * 4 * x_BLC.size * 37


def test_what_comes_in_half_precision_is_summed_in_float32():
    x_BLC, chain, tags_BL = draw(11)
    half, chain_half = (
        jnp.asarray(x_BLC, jnp.bfloat16),
        Chain(*(x.astype("bfloat16") for x in chain)),
    )
    found_B = likelihood(half, tags_BL, chain_half, VALID_BL)
    rounded = np.asarray(half, "f"), tags_BL, Chain(*(x.astype("f") for x in chain_half))
    np.testing.assert_array_equal(found_B, likelihood(*rounded, VALID_BL))
    assert found_B.dtype == jnp.float32


def test_loss_weighs_whole_rows_and_an_empty_row_weighs_nothing():
    x_BLC, chain, tags_BL = draw(12)
    own_B = likelihood(x_BLC, tags_BL, chain, VALID_BL)
    total, weight = jax.tree.leaves(loss(x_BLC, tags_BL, chain, VALID_BL))
    np.testing.assert_allclose(total, -own_B.sum(), rtol=1e-6)
    assert weight == B - 1
    weights_B = np.array([0.5, 0, 2, 0, 0, 7])
    total, weight = jax.tree.leaves(loss(x_BLC, tags_BL, chain, VALID_BL, weights_B=weights_B))
    np.testing.assert_allclose(total, -(0.5 * own_B[0] + 2 * own_B[2]), rtol=1e-6)
    assert weight == 2.5


def test_it_begins_as_a_softmax_of_each_position():
    x_BLC, _, tags_BL = draw(13)
    model = CRF(C)
    start = quick_jit(model.init_with_output)
    found, params = start(jax.random.key(0), x_BLC, tags_BL)
    wanted = optax.softmax_cross_entropy_with_integer_labels(x_BLC, tags_BL).sum()
    np.testing.assert_allclose(found.total, wanted, rtol=1e-5)
    assert found.weight == B
    shapes = jax.tree.map(jnp.shape, params["params"])
    assert shapes == {"start_C": (C,), "end_C": (C,), "transition_CC": (C, C)}


def test_rows_over_devices_give_the_same_loss():
    x_BLC, chain, tags_BL = draw(16, rows=8)
    valid_BL = np.concatenate([VALID_BL, VALID_BL[:2]])
    grad = jax.value_and_grad(lambda x, c: crf.loss(x, tags_BL, c, valid_BL).total, (0, 1))
    layout = Layout(make_mesh(data=4, fsdp=2))
    with sharding_context(layout):
        many = quick_jit(grad)(layout.shard_batch({"x_BLC": x_BLC}, 8)["x_BLC"], chain)
    one = quick_jit(grad)(x_BLC, chain)
    assert many[1][0].sharding.spec[0] == ("data", "fsdp")
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=1e-5), many, one)


def test_emissions_of_another_number_of_tags_are_refused():
    with pytest.raises(ValueError, match="a chain of C=3 tags, emissions of 4"):
        crf.viterbi(draw(tags=4)[0], draw()[1])
