"""The neural cache: words that came before are likelier to come again where states are alike.

Grave, Joulin & Usunier 2017 (arXiv 1612.04426), which the AWD-LSTM's paper calls its pointer.
Nothing of it is learned.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp


class Cache(NamedTuple):
    """The last W positions of each row, the latest at the end.

    Attributes:
        h_BWD: their states.
        next_BW: the words that followed, which is what the states predicted.
        count_B: how many there are so far, W at most.
    """

    h_BWD: jax.Array
    next_BW: jax.Array
    count_B: jax.Array


def init_cache(B: int, W: int, D: int, dtype) -> Cache:
    """Builds a cache of W positions without content."""
    zeros = jnp.zeros((B, W, D), dtype), jnp.zeros((B, W), jnp.int32), jnp.zeros(B, jnp.int32)
    return Cache(*zeros)


def predict(cache: Cache, h_BLD, next_BL, valid_BL, theta: float):
    """Computes how likely the cache finds each next word.

    Position i of the W before it has the weight softmax(theta h . h_i), and a word that of all
    positions which it followed.  The released code lets the cache count only once it is full; here
    it counts from its first position on.

    Args:
        valid_BL: where there is text; rows are padded at their end.

    Returns:
        (p_BL, is_filled_BL: False where the cache was empty, the cache behind these positions).
    """
    W, L = cache.next_BW.shape[1], next_BL.shape[1]
    keys_BJD = jnp.concatenate([cache.h_BWD, h_BLD.astype(cache.h_BWD.dtype)], 1)
    words_BJ = jnp.concatenate([cache.next_BW, next_BL], 1)
    is_old_BW = jnp.arange(W) >= W - cache.count_B[:, None]
    is_real_BJ = jnp.concatenate([is_old_BW, valid_BL], 1)
    # Position l stands at W + l: it sees the W places before that one.
    distance_LJ = W + jnp.arange(L)[:, None] - jnp.arange(W + L)
    seen_BLJ = (distance_LJ >= 1) & (distance_LJ <= W) & is_real_BJ[:, None]
    scores_BLJ = theta * jnp.einsum(
        "BLD,BJD->BLJ", h_BLD, keys_BJD, preferred_element_type=jnp.float32
    )
    is_filled_BL = seen_BLJ.any(-1)
    # Over no position at all the softmax would be NaN.
    weights_BLJ = jax.nn.softmax(scores_BLJ, where=seen_BLJ | ~is_filled_BL[..., None])
    is_next_BLJ = words_BJ[:, None] == next_BL[..., None]
    p_BL = (weights_BLJ * (is_next_BLJ & seen_BLJ)).sum(-1)
    return p_BL, is_filled_BL, _advance(cache, keys_BJD, words_BJ, valid_BL.sum(1))


def _advance(cache: Cache, keys_BJD, words_BJ, new_B) -> Cache:
    """Keeps the last W positions, of which `new_B` came in this batch."""
    W = cache.next_BW.shape[1]
    # Padding stands at the end, so the last W begin as far on as there are new ones.
    cut = jax.vmap(lambda x_J, start: jax.lax.dynamic_slice_in_dim(x_J, start, W))
    count_B = jnp.minimum(cache.count_B + new_B, W)
    return Cache(cut(keys_BJD, new_B), cut(words_BJ, new_B), count_B)


def mix(nats_BL, p_BL, is_filled_BL, share: float):
    """Mixes the log-likelihoods of a model with the cache's, which has this share: [B, L]."""
    # In logarithms: the probability of an unlikely word may be 0 in float32.
    mixed_BL = jnp.logaddexp(jnp.log1p(-share) + nats_BL, jnp.log(share * p_BL))
    return jnp.where(is_filled_BL, mixed_BL, nats_BL)
