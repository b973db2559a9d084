"""Pooling of a row's states to one vector: one state, an average, a maximum, or attention.

Most pool the states of one layer, h_BLD; those of `LAYERED` pool all layers, h_NBLD.
Nothing matters that stands where a row is not valid, and a row in which nothing is valid gives
zeros.  The vectors have the states' dtype; sums are in float32.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from flax import linen as nn

from modules.activation_sharding import constrain_sharding
from modules.kernels.softmax import softmax
from modules.layers import params


def first(h_BLD, valid_BL):
    """Takes the first valid state: [B, L, D], [B, L] -> [B, D]."""
    return _take(h_BLD, valid_BL, valid_BL.argmax(1))


def last(h_BLD, valid_BL):
    """Takes the last valid state: [B, L, D], [B, L] -> [B, D]."""
    return _take(h_BLD, valid_BL, valid_BL.shape[1] - 1 - valid_BL[:, ::-1].argmax(1))


def _take(h_BLD, valid_BL, position_B):
    """Takes one state of each row, [B, D]; zeros of a row in which nothing is valid."""
    state_BD = jnp.take_along_axis(h_BLD, position_B[:, None, None], axis=1)[:, 0]
    return jnp.where(valid_BL.any(1, keepdims=True), state_BD, 0)


def mean(h_BLD, valid_BL):
    """Averages the valid states: [B, L, D], [B, L] -> [B, D]."""
    # `where` and no product with 0: what stands at padding may be NaN.
    sum_BD = h_BLD.sum(1, dtype=jnp.float32, where=valid_BL[..., None])
    return (sum_BD / jnp.maximum(valid_BL.sum(1, keepdims=True), 1)).astype(h_BLD.dtype)


def highest(h_BLD, valid_BL):
    """Takes the maximum of each number over the valid states: [B, L, D], [B, L] -> [B, D]."""
    top_BD = jnp.where(valid_BL[..., None], h_BLD, jnp.finfo(h_BLD.dtype).min).max(1)
    return jnp.where(valid_BL.any(1, keepdims=True), top_BD, 0)


def concat(h_BLD, valid_BL):
    """Puts last, highest and mean side by side: [B, L, D], [B, L] -> [B, 3 D]."""
    # Concat pooling of Howard & Ruder 2018 (arXiv 1801.06146), section 3.3.
    return jnp.concatenate([f(h_BLD, valid_BL) for f in (last, highest, mean)], -1)


def last_two(h_NBLD, valid_BL):
    """Averages the valid states of the last two layers: [N + 1, B, L, D], [B, L] -> [B, D]."""
    # Li et al. 2020 (arXiv 2011.05864); ConSERT is evaluated so (Yan et al. 2021, section 4.1).
    return _mean_of_layers(h_NBLD[-2], h_NBLD[-1], valid_BL)


def first_last(h_NBLD, valid_BL):
    """Averages the valid states of the first and last layer: [N + 1, B, L, D] -> [B, D]."""
    # Su et al. 2021 (arXiv 2103.15316).  The first layer's states follow the embedding.
    return _mean_of_layers(h_NBLD[1], h_NBLD[-1], valid_BL)


def _mean_of_layers(one_BLD, other_BLD, valid_BL):
    # In float32: half precision would round the sum of two layers.
    means = (mean(h.astype(jnp.float32), valid_BL) for h in (one_BLD, other_BLD))
    return (sum(means) / 2).astype(other_BLD.dtype)


def keep_last(valid_BL, n: int):
    """Keeps the last `n` valid positions of each row: bool [B, L]; 0 keeps all."""
    if not n:
        return valid_BL
    # How many valid positions there are from here to the end.
    left_BL = jnp.cumsum(valid_BL[:, ::-1].astype(jnp.int32), 1)[:, ::-1]
    return valid_BL & (left_BL <= n)


def attention(h_BLD, valid_BL, query_HD, squash: bool = False):
    """Averages by softmax(query . state) over the valid: [B, L, D], [B, L], [H, D] -> [B, D].

    Each head scores whole states and averages its own D / H of their numbers.  With `squash`
    it scores tanh(state), and the vector is the tanh of the average: with one head that of Zhou et
    al. 2016 (P16-2034, equations 9 to 12).
    """
    h_BLD = jnp.where(valid_BL[..., None], h_BLD, 0)  # a share of 0 times NaN would be NaN
    seen_BLD = jnp.tanh(h_BLD) if squash else h_BLD
    scores_BHL = jnp.einsum(
        "BLD,HD->BHL", seen_BLD, query_HD.astype(h_BLD.dtype), preferred_element_type=jnp.float32
    )
    share_BHL = softmax(scores_BHL, valid_BL[:, None]).astype(h_BLD.dtype)
    B, L, D = h_BLD.shape
    h_BLHK = h_BLD.reshape(B, L, len(query_HD), -1)
    pooled_BD = jnp.einsum("BHL,BLHK->BHK", share_BHL, h_BLHK).reshape(B, D)
    return jnp.tanh(pooled_BD) if squash else pooled_BD


PLAIN: dict[str, Callable[[jax.Array, jax.Array], jax.Array]] = {
    "first": first,
    "last": last,
    "mean": mean,
    "max": highest,
    "concat": concat,
}
LAYERED: dict[str, Callable[[jax.Array, jax.Array], jax.Array]] = {
    "last_two": last_two,
    "first_last": first_last,
}
ATTENTIONS = {"attention": False, "tanh_attention": True}  # the value: `squash`
KINDS = (*PLAIN, *ATTENTIONS)


def pool_layers(kind: str, h_NBLD, valid_BL):
    """Pools by a kind without weights, of `PLAIN` or `LAYERED`: [N + 1, B, L, D] -> [B, D].

    Args:
        h_NBLD: every layer's states, as `layer_states` of a backbone gives them.  A kind of `PLAIN`
            reads the last.

    Raises:
        ValueError: there is no such kind.
    """
    if kind in LAYERED:
        return LAYERED[kind](h_NBLD, valid_BL)
    if kind not in PLAIN:
        raise ValueError(f"pool={kind!r} is none of {', '.join((*PLAIN, *LAYERED))}")
    return PLAIN[kind](h_NBLD[-1], valid_BL)


class Pool(nn.Module):
    """Pools the states of each row.

    Attributes:
        kind: "first", "last", "mean", "max", "concat", "attention" or "tanh_attention"
            (`attention` with `squash`).
        H: heads of the attention.  Its queries begin at zero: as the average.
    """

    kind: str = "first"
    H: int = 1

    def __post_init__(self):
        super().__post_init__()
        params.check_choice(self, "kind", KINDS)

    @nn.compact
    def __call__(self, h_BLD, valid_BL=None):
        """Pools [B, L, D] to [B, D], or to [B, 3 D] with "concat".

        Args:
            valid_BL: False where a row is padded; None: nowhere.

        Raises:
            ValueError: D does not divide over the heads.
        """
        valid_BL = jnp.ones(h_BLD.shape[:2], bool) if valid_BL is None else valid_BL.astype(bool)
        if self.kind in ATTENTIONS:
            query_HD = self._query(h_BLD.shape[-1])
            pooled_BD = attention(h_BLD, valid_BL, query_HD, ATTENTIONS[self.kind])
        else:
            pooled_BD = PLAIN[self.kind](h_BLD, valid_BL)
        return constrain_sharding(pooled_BD, "BD")

    def _query(self, D: int):
        if D % self.H:
            raise ValueError(f"D={D} does not divide over H={self.H} heads")
        return params.param(self, "query_HD", params.zeros, (self.H, D), decay=True)
