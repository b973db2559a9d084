"""What outlives a window, and who sees it."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from modules.backbones.two_stream import Memory
from tests.support import arrays
from tests.support.compiler import quick_jit
from tests.support.recording_backbone import REUSE, B, L, M, draw, listen, spied, tiny


def stream(seed):
    """A lane of tokens, all different, in documents: (tokens, where documents begin)."""
    rng = np.random.default_rng(seed)
    T = REUSE * 6 + L
    starts_BT = rng.random((B, T)) < 0.07
    return np.arange(100, 100 + B * T).reshape(B, T), starts_BT


def window(tokens_BT, starts_BT, w):
    cut = slice(w * REUSE, w * REUSE + L)
    batch = draw(bidirectional=False)
    return batch | {"tokens_BL": tokens_BT[:, cut], "document_start_BL": starts_BT[:, cut]}


@pytest.mark.parametrize("seed", [0, 1])
def test_memory_is_seen_within_a_document_and_by_no_other(seed):
    tokens_BT, starts_BT = stream(seed)
    document_BT, carry = np.cumsum(starts_BT, 1), None
    hidden = shown = 0
    for w in range(6):
        _, asked, carry = listen(spied(), window(tokens_BT, starts_BT, w), carry)
        for b, i, m in np.ndindex(B, L, M):
            held = w * REUSE - M + m  # where in the lane this entry of the memory was read
            same = held >= 0 and document_BT[b, held] == document_BT[b, w * REUSE + i]
            assert asked["content"][b, i, m] == same
            if held >= 0:
                assert asked["memory_NBMD"][0, b, m, 0] == tokens_BT[b, held]
                hidden, shown = hidden + (not same), shown + same
    assert hidden > 100
    assert shown > 100


def test_without_reset_all_of_the_memory_is_seen_from_the_first_window_on():
    tokens_BT, starts_BT = stream(0)
    _, asked, carry = listen(spied(reset=False), window(tokens_BT, starts_BT, 0))
    assert asked["content"][..., :M].all()
    assert not asked["memory_NBMD"].any()
    _, asked, _ = listen(spied(reset=False), window(tokens_BT, starts_BT, 1), carry)
    assert asked["content"][..., :M].all()
    np.testing.assert_array_equal(asked["memory_NBMD"][0, ..., 0], tokens_BT[:, REUSE - M : REUSE])


def test_dead_memory_moves_no_bit_of_the_loss_and_live_does():
    objective, batch, rngs = tiny(), draw(), {"corrupt": jax.random.key(3)}
    init = functools.partial(objective.init, rngs | {"params": jax.random.key(0)})
    params = arrays.draw_variables(init, batch, train=False, scale=0.2)["params"]
    batch["document_start_BL"][:, 4] = True
    alive_BM = np.arange(M) >= np.array([[M], [3], [M]])
    noise = jax.random.normal(jax.random.key(1), (2, B, M, 8))

    @quick_jit
    def loss(h_NBMD):
        memory = {"states": Memory(h_NBMD), "alive_BM": alive_BM}
        sums = objective.apply({"params": params, "memory": memory}, batch, train=False, rngs=rngs)
        return sums["loss"].total

    dead = noise.at[:, jnp.arange(B) != 1].add(5.0).at[:, 1, :3].add(5.0)
    assert loss(noise) == loss(dead)
    assert loss(noise) != loss(noise.at[:, 1, 3:].add(5.0))
