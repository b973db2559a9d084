"""A whole row as one vector: a state picked out, an average, a maximum, or what a query asks for.

In all of them nothing that is not valid matters, whatever stands there, and a row in which
nothing is valid gives zeros.  The vectors have the states' dtype; sums are in float32.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from flax import linen as nn

from modules.activation_sharding import constrain_sharding
from modules.kernels.softmax import softmax
from modules.layers import params


def first(h_BLD, valid_BL):
    """The first valid state: [B, L, D], [B, L] -> [B, D]."""
    return at(h_BLD, valid_BL, valid_BL.argmax(1))


def last(h_BLD, valid_BL):
    """The last valid state: [B, L, D], [B, L] -> [B, D]."""
    return at(h_BLD, valid_BL, valid_BL.shape[1] - 1 - valid_BL[:, ::-1].argmax(1))


def at(h_BLD, valid_BL, place_B):
    """The state at each row's own place, [B, D]; zeros for a place that is not valid or not there.

    Places count from 0; one below 0 is not there.
    """
    near_B = jnp.clip(place_B, 0, h_BLD.shape[1] - 1)
    there_B = jnp.take_along_axis(valid_BL, near_B[:, None], axis=1)[:, 0] & (near_B == place_B)
    state_BD = jnp.take_along_axis(h_BLD, near_B[:, None, None], axis=1)[:, 0]
    return jnp.where(there_B[:, None], state_BD, 0)


def mean(h_BLD, valid_BL):
    """The average of the valid states: [B, L, D], [B, L] -> [B, D]."""
    sum_BD = h_BLD.sum(1, dtype=jnp.float32, where=valid_BL[..., None])
    return (sum_BD / jnp.maximum(valid_BL.sum(1, keepdims=True), 1)).astype(h_BLD.dtype)


def highest(h_BLD, valid_BL):
    """The maximum of each number over the valid states: [B, L, D], [B, L] -> [B, D]."""
    top_BD = jnp.where(valid_BL[..., None], h_BLD, jnp.finfo(h_BLD.dtype).min).max(1)
    return jnp.where(valid_BL.any(1, keepdims=True), top_BD, 0)


def attention(h_BLD, valid_BL, query_HD, squash: bool = False):
    """Averages by softmax(query . state) over the valid: [B, L, D], [B, L], [H, D] -> [B, D].

    Each head scores whole states and averages its own D / H of their numbers.  With `squash`
    it scores tanh(state), and the vector is the tanh of the average: with one head that of Zhou et
    al. 2016 (P16-2034, equations 9 to 12).
    """
    h_BLD = jnp.where(valid_BL[..., None], h_BLD, 0)
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
}
ATTENTIONS = {"attention": False, "tanh_attention": True}  # the value: `squash`
KINDS = (*PLAIN, *ATTENTIONS, "place")


class Pool(nn.Module):
    """States to one vector for each row.

    Attributes:
        kind: "first", "last", "mean", "max", "attention", "tanh_attention" (`attention` with
            `squash`) or "place": `at` the row's own place, such as GPT-1's extract token.
        H: heads of the attention.  Its queries begin at zero: as the average.
    """

    kind: str = "first"
    H: int = 1

    def __post_init__(self):
        super().__post_init__()
        params.check_choice(self, "kind", KINDS)

    @nn.compact
    def __call__(self, h_BLD, valid_BL=None, place_B=None):
        """[B, L, D] -> [B, D]; `valid_BL`, None: all; `place_B` is for kind="place" alone.

        Raises:
            ValueError: no places where they are needed; heads that D does not divide over.
        """
        valid_BL = jnp.ones(h_BLD.shape[:2], bool) if valid_BL is None else valid_BL.astype(bool)
        if self.kind in ATTENTIONS:
            query_HD = self._query(h_BLD.shape[-1])
            pooled_BD = attention(h_BLD, valid_BL, query_HD, ATTENTIONS[self.kind])
        elif self.kind == "place":
            if place_B is None:
                raise ValueError("kind='place' needs place_B, a position for each row")
            pooled_BD = at(h_BLD, valid_BL, place_B)
        else:
            pooled_BD = PLAIN[self.kind](h_BLD, valid_BL)
        return constrain_sharding(pooled_BD, "BD")

    def _query(self, D: int):
        if D % self.H:
            raise ValueError(f"D={D} does not divide over H={self.H} heads")
        return params.param(self, "query_HD", params.zeros, (self.H, D), decay=True)
