"""Who reaches whom, and what may be changed without changing a number."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from modules.masks import Mask, at
from pretrain.objectives import corruption
from tests.support import xlnet_reference as reference
from tests.support.compiler import quick_jit
from tests.support.xlnet_inputs import arguments, backbone, draw_inputs

pytestmark = pytest.mark.usefixtures("exactly")

PLAIN = reference.Config(n_token=40)
WEIGHTS = jax.tree.map(jnp.asarray, reference.ours(reference.random_weights(PLAIN, 1), PLAIN))
EVERYTHING = Mask()


def close(a, b, tolerance=2e-6):
    np.testing.assert_allclose(a, b, atol=tolerance * float(np.abs(b).max()), rtol=0)


def states(cfg, params, tokens_BL, mask=EVERYTHING, **given):
    call = backbone(cfg).apply
    return quick_jit(lambda p: call({"params": p}, tokens_BL, mask=mask, **given, train=False))(
        params
    )


# --- who reaches whom ------------------------------------------------------------------------


def permuted_row():
    """Twelve tokens in a drawn order, four of them predicted: (tokens, mask, slots)."""
    order_L = jax.random.permutation(jax.random.key(3), 12)
    slots_P = jnp.array([9, 1, 4, 6])
    picked_L = jnp.zeros(12, bool).at[slots_P].set(True)
    special_L = jnp.arange(12) == 11
    rank_L, below_L = corruption.rank_positions(order_L, picked_L, special_L)
    mask = Mask(rank_BL=rank_L[None], sees_below_BL=below_L[None], hides_slots=True)
    return 7 + jnp.arange(12)[None], mask, slots_P[None]


def test_no_bit_of_a_query_moves_with_an_invisible_place():
    tokens_BL, mask, slots_BP = permuted_row()
    given = dict(mask=mask, slots_BP=slots_BP, train=False)
    run = quick_jit(lambda tokens: backbone(PLAIN).apply({"params": WEIGHTS}, tokens, **given).h[0])
    h_PD = run(tokens_BL)
    others = [run(tokens_BL.at[0, place].set(30)) for place in range(12)]
    reached_PL = np.stack([np.any(other_PD != h_PD, -1) for other_PD in others], 1)
    np.testing.assert_array_equal(reached_PL, mask.dense(12, slots_BP=slots_BP)[0])
    assert not any(reached_PL[p, slot] for p, slot in enumerate(slots_BP[0]))


# --- content and logits ----------------------------------------------------------------------


def test_content_of_slots_is_the_content_at_their_places():
    tokens_BL = np.random.default_rng(0).integers(0, 40, (2, 8))
    slots_BP = np.array([[3, 0, 7], [1, 1, 2]])
    whole = states(PLAIN, WEIGHTS, tokens_BL).h
    close(states(PLAIN, WEIGHTS, tokens_BL, slots_BP=slots_BP).h, at(whole, slots_BP))


def test_padding_on_either_side_leaves_the_real_states_alone():
    rng = np.random.default_rng(0)
    short_BL, segments_BL = rng.integers(0, 40, (2, 8)), rng.integers(0, 2, (2, 8))

    @quick_jit
    def encode(tokens_BL, valid_BL, segments_BL):
        given = dict(mask=Mask(valid_BL=valid_BL), segments_BL=segments_BL, train=False)
        return backbone(PLAIN).apply({"params": WEIGHTS}, tokens_BL, **given).h

    rows = (short_BL, np.ones((2, 8), bool), segments_BL)
    alone = encode(*rows)
    for left in (0, 3):
        padded = encode(*(np.pad(x, ((0, 0), (left, 3 - left))) for x in rows))
        close(padded[:, left : left + 8], alone)


# --- memory ----------------------------------------------------------------------------------


def test_no_gradient_flows_into_the_memory_that_is_kept():
    cfg = reference.Config(mem_len=5)
    params = reference.ours(reference.random_weights(cfg, 2), cfg)
    given = arguments(cfg, draw_inputs(cfg, np.random.default_rng(0), 6))

    def kept(params):
        out = backbone(cfg).apply({"params": params}, **given, train=False)
        return (out.memory.h_NBMD**2).sum()

    grads = quick_jit(jax.grad(kept))(params)
    assert all(not np.any(x) for x in jax.tree.leaves(grads))
