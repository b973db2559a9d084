"""Attention of BERT and GPT, and the one place that chooses how its softmax is computed."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn

from modules import masks
from modules.activation_sharding import constrain_sharding
from modules.kernels.dense import dense
from modules.kernels.softmax import softmax
from modules.layers import params
from modules.layers.dropout import Dropout


class Sight(NamedTuple):
    """What queries see of keys: as a mask and, where that can be said so, in a kernel's words."""

    visible: jax.Array  # bool, broadcasts to [B, H, L, J]
    words: dict | None = None  # arguments of jax.nn.dot_product_attention; None: the mask alone
    near: jax.Array | None = None  # what is left of it to a banded layer

    def narrowed(self, banded) -> "Sight":
        """For a layer that sees a band alone, if `banded`, a scalar, says so."""
        return self if self.near is None else Sight(self.visible & (self.near | ~banded))


def sight(
    L: int, *, causal: bool, window: int = 0, slots_BP=None, lengths_B=None, groups_BL=None
) -> Sight:
    """L positions, or those in the slots, looking at L positions.

    Args:
        causal: at what came before them and themselves.
        window: banded layers see the last so many of those alone.
        lengths_B: of each row only the first so many are there to be seen.
        groups_BL: a position sees its own group alone (documents in one row).
    """
    place_BL = jnp.arange(L)[None] if slots_BP is None else slots_BP
    visible = masks.before(place_BL, L) if causal else jnp.ones((1, 1, L), bool)
    words: dict = {"is_causal": True} if causal else {}
    if lengths_B is not None:
        visible &= masks.within(lengths_B, L)
        words["key_value_seq_lengths"] = jnp.maximum(lengths_B, 1)  # filler rows: no 0 / 0
    if groups_BL is not None:
        own_BL = groups_BL if slots_BP is None else at(groups_BL, slots_BP)
        visible &= masks.same(own_BL, groups_BL)
    told = groups_BL is None and not (causal and slots_BP is not None)
    near = masks.before(place_BL, L, window)[:, None] if window else None
    return Sight(visible[:, None], words if told else None, near)


def at(x_BL, slots_BP):
    """The entries of [B, L, ...] at these positions: [B, P, ...]."""
    return jax.vmap(lambda x_L, slots_P: x_L[slots_P])(x_BL, slots_BP)


def attend(q_BLHK, k_BJHK, v_BJHK, sight: Sight, drop: Dropout, *, train: bool):
    """softmax(q k / sqrt K) v over what is seen: [B, L, H, K].

    cuDNN's fused kernel where it is exact: on a GPU, in half precision, without dropout of the
    probabilities, which it cannot do.  Elsewhere the probabilities are computed in float32.
    """
    if fused(q_BLHK, k_BJHK, sight) and not (train and drop.rate):
        words = {"mask": sight.visible} if sight.words is None else sight.words
        return jax.nn.dot_product_attention(q_BLHK, k_BJHK, v_BJHK, implementation="cudnn", **words)
    scale = q_BLHK.shape[-1] ** -0.5
    a_BHLJ = jnp.einsum("BLHK,BJHK->BHLJ", q_BLHK * scale, k_BJHK)
    p_BHLJ = softmax(a_BHLJ, sight.visible, v_BJHK.dtype)
    return jnp.einsum("BHLJ,BJHK->BLHK", drop(p_BHLJ, train=train), v_BJHK)


def fused(q_BLHK, k_BJHK, sight: Sight) -> bool:
    """Whether cuDNN's kernel takes these on this machine; a mask only in whole tiles of 128."""
    if jax.default_backend() != "gpu" or q_BLHK.dtype not in (jnp.bfloat16, jnp.float16):
        return False
    tiles = q_BLHK.shape[1] % 128 == k_BJHK.shape[1] % 128 == 0
    K, card = q_BLHK.shape[-1], str(getattr(jax.devices()[0], "compute_capability", ""))
    recent = card.replace(".", "", 1).isdigit() and float(card) >= 8  # Ampere; not "gfx90a"
    return recent and K % 8 == 0 and K <= 128 and (tiles or sight.words is not None)


class Past(NamedTuple):
    """Keys and values of what a row has read, [B, J, H, K], and how many of the J those are."""

    k_BJHK: jax.Array
    v_BJHK: jax.Array
    length_B: jax.Array

    def written(self, k_BLHK, v_BLHK):
        """Keys and values with new ones put behind those of each row, as far as there is room."""
        row_B1 = jnp.arange(len(self.length_B))[:, None]
        place_BL = self.length_B[:, None] + jnp.arange(k_BLHK.shape[1])
        pairs = (self.k_BJHK, k_BLHK), (self.v_BJHK, v_BLHK)
        return tuple(
            old.at[row_B1, place_BL].set(new.astype(old.dtype), mode="drop") for old, new in pairs
        )


class Attention(nn.Module):
    """Heads with biases: projections, `attend`, and back."""

    H: int
    K: int
    dropout: float
    inwards: nn.initializers.Initializer
    outwards: nn.initializers.Initializer
    dtype: str

    @nn.compact
    def __call__(self, x_BLD, y_BJD, sight: Sight, past: Past | None = None, *, train: bool):
        """What x gathers of y, [B, L, D], and y's keys and values, behind those of the past."""
        H, K, D = self.H, self.K, x_BLD.shape[-1]

        def project(x_BLD, letter: str):
            w_DHK = params.param(
                self, f"w{letter}_DHK", self.inwards, (D, H, K), decay=True, dtype=self.dtype
            )
            b_HK = params.param(
                self, f"b{letter}_HK", params.zeros, (H, K), decay=False, dtype=self.dtype
            )
            out_BLF = dense(x_BLD, w_DHK.reshape(D, H * K))
            return constrain_sharding(out_BLF.reshape(*x_BLD.shape[:2], H, K) + b_HK, "BLHK")

        q_BLHK, k_BJHK, v_BJHK = project(x_BLD, "q"), project(y_BJD, "k"), project(y_BJD, "v")
        if past:
            k_BJHK, v_BJHK = past.written(k_BJHK, v_BJHK)
        drop = Dropout(self.dropout)
        o_BLHK = constrain_sharding(
            attend(q_BLHK, k_BJHK, v_BJHK, sight, drop, train=train), "BLHK"
        )
        wo_HKD = params.param(
            self, "wo_HKD", self.outwards, (H, K, D), decay=True, dtype=self.dtype
        )
        bo_D = params.param(self, "bo_D", params.zeros, (D,), decay=False, dtype=self.dtype)
        o_BLF = o_BLHK.reshape(*x_BLD.shape[:2], H * K)
        return dense(o_BLF, wo_HKD.reshape(H * K, D)) + bo_D, (k_BJHK, v_BJHK)
