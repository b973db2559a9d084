"""Attention with relative positions (Transformer-XL, XLNet), and one layer of it.

The score of a query with the distance to its key is added to that with the key itself.

A distance is query minus key: how far back the key lies.  Tables of distances run from the
furthest back, M + L - 1 (the last query and the first of M + L keys), down to -L, which no pair
has but which rounds R to M + 2L and lets every shift be a change of row length.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn

from modules.activation_sharding import constrain_sharding
from modules.kernels.relative_shift import cut_rows
from modules.kernels.softmax import softmax
from modules.layers.dropout import Dropout
from modules.layers.feed_forward import FeedForward
from modules.layers.norm import Norm
from modules.layers.params import initializer, param


def sinusoids(L: int, M: int, D: int, *, clamp: int = -1, backward: bool = False):
    """[R, D] float32, R = M + 2L: sines, then cosines, of every distance.

    `backward` is the table of rows read from right to left, where distances change sign;
    `clamp` > 0 limits the distances first (Transformer-XL, section 3.3 and its code).
    """
    distance_R = jnp.arange(M + L - 1, -L - 1, -1.0)
    distance_R = -distance_R if backward else distance_R
    if clamp > 0:
        distance_R = jnp.clip(distance_R, -clamp, clamp)
    frequency_D = 10000.0 ** -(jnp.arange(0, D, 2) / D)
    angle_RD = distance_R[:, None] * frequency_D
    return jnp.concatenate([jnp.sin(angle_RD), jnp.cos(angle_RD)], axis=-1)


def scores(q_BLHK, r_RHK, block: int = 128):
    """Every query with its distance to each of the J = R - L keys: [B, H, L, J].

    Row i of the L queries needs the J distances from R - J - 1 - i on, so all rows together
    need scores with all R.  Taken in blocks, b rows need only J + b of them; within a block
    the shift is a change of row length.

    Args:
        q_BLHK: queries, whose positions are those of the last L keys.
        r_RHK: distances, projected; or r_BRHK where they differ by example.
        block: rows taken together, if that divides L.
    """
    B, L, H, K = q_BLHK.shape
    axis = r_RHK.ndim - 3
    J, b = r_RHK.shape[axis] - L, block if L % block == 0 else L
    windows = [jax.lax.slice_in_dim(r_RHK, s, s + J + b, axis=axis) for s in range(L - b, -1, -b)]
    rows = "BcWHK" if axis else "cWHK"
    q = q_BLHK.reshape(B, L // b, b, H, K)
    raw = jnp.einsum(f"BcbHK,{rows}->BHcbW", q, jnp.stack(windows, axis))
    flat = raw.reshape(B, H, L // b, b * (J + b))[..., b - 1 : b - 1 + b * (J + b - 1)]
    return flat.reshape(B, H, L, J + b - 1)[..., :J]


def scores_at(q_BPHK, r_RHK, slots_BP, L: int):
    """The rows of `scores` at these positions of a sequence of L: [B, H, P, J]."""
    rows = "BRHK" if r_RHK.ndim == 4 else "RHK"
    raw_BHPR = jnp.einsum(f"BPHK,{rows}->BHPR", q_BPHK, r_RHK)
    return cut_rows(raw_BHPR, L - 1 - slots_BP, raw_BHPR.shape[-1] - L)


# --- a layer ---------------------------------------------------------------------------------


class AttentionView(NamedTuple):
    """How the queries of one stream lie to the keys; the same in every layer.

    Attributes:
        visible: bool, broadcasts to [B, H, L, J].
        differs: likewise; the key is of another segment.
        slots_BP: the queries' positions; None: all L in order.
    """

    visible: jax.Array
    differs: jax.Array
    slots_BP: jax.Array | None = None


class Distances(NamedTuple):
    """Sinusoids of every distance: [R, D], [2, R, D] (by direction) or [B, R, D] (by example).

    Attributes:
        backward_B: which of the two directions a row reads.
    """

    table: jax.Array
    backward_B: jax.Array | None = None


class Biases(nn.Module):
    """What every query adds of its own when it meets a content, a position, a segment."""

    H: int
    K: int
    initializer: tuple[str, float]
    dtype: str

    @nn.compact
    def __call__(self):
        init = initializer(*self.initializer)
        names = ("content_HK", "position_HK", "segment_HK")
        return tuple(  # these decay, as in the released code
            param(self, name, init, (self.H, self.K), decay=True, dtype=self.dtype)
            for name in names
        )


class Attention(nn.Module):
    """Relative attention with a bias for content, position and segment each."""

    D: int
    H: int
    K: int
    untied: bool
    dropout: float
    block: int
    initializer: tuple[str, float]
    dtype: str

    def setup(self):
        D, H, K, init = self.D, self.H, self.K, initializer(*self.initializer)
        self.wq_DHK = param(self, "wq_DHK", init, (D, H, K), decay=True, dtype=self.dtype)
        self.wk_DHK = param(self, "wk_DHK", init, (D, H, K), decay=True, dtype=self.dtype)
        self.wv_DHK = param(self, "wv_DHK", init, (D, H, K), decay=True, dtype=self.dtype)
        self.wr_DHK = param(self, "wr_DHK", init, (D, H, K), decay=True, dtype=self.dtype)
        self.wo_HKD = param(self, "wo_HKD", init, (H, K, D), decay=True, dtype=self.dtype)
        self.segment_SHK = param(self, "segment_SHK", init, (2, H, K), decay=True, dtype=self.dtype)
        if self.untied:
            self.biases = Biases(H, K, self.initializer, self.dtype)
        self.drop = Dropout(self.dropout)

    def keys(self, kv_BJD, distances: Distances):
        """Projects keys, values and distances, each once for all streams."""
        k_BJHK = jnp.einsum("BJD,DHK->BJHK", kv_BJD, self.wk_DHK)
        v_BJHK = jnp.einsum("BJD,DHK->BJHK", kv_BJD, self.wv_DHK)
        k_BJHK, v_BJHK = (constrain_sharding(x, "BJHK") for x in (k_BJHK, v_BJHK))
        r = jnp.einsum("...RD,DHK->...RHK", distances.table, self.wr_DHK)
        if distances.backward_B is not None:
            r = jnp.where(distances.backward_B[:, None, None, None], r[1], r[0])
        return k_BJHK, v_BJHK, r

    def __call__(self, x_BLD, keys, view: AttentionView, tied, L: int, *, train: bool):
        """Gathers for x what it sees of the keys of a sequence of L: [B, L, D]."""
        k_BJHK, v_BJHK, r = keys
        content_HK, position_HK, segment_HK = self.biases() if self.untied else tied
        scale = self.K**-0.5
        q_BLHK = jnp.einsum("BLD,DHK->BLHK", x_BLD, self.wq_DHK)
        q_BLHK = constrain_sharding(q_BLHK, "BLHK")

        a_BHLJ = jnp.einsum("BLHK,BJHK->BHLJ", (q_BLHK + content_HK) * scale, k_BJHK)
        q_position_BLHK = (q_BLHK + position_HK) * scale
        if view.slots_BP is None:
            a_BHLJ += scores(q_position_BLHK, r, self.block)
        else:
            a_BHLJ += scores_at(q_position_BLHK, r, view.slots_BP, L)
        # A softmax ignores what a row has in common: only the segments' difference counts.
        other_HK = self.segment_SHK[1] - self.segment_SHK[0]
        e_BHL = jnp.einsum("BLHK,HK->BHL", (q_BLHK + segment_HK) * scale, other_HK)
        a_BHLJ += jnp.where(view.differs, e_BHL[..., None], 0)

        p_BHLJ = softmax(a_BHLJ, view.visible, x_BLD.dtype)
        p_BHLJ = self.drop(p_BHLJ, train=train)
        o_BLHK = jnp.einsum("BHLJ,BJHK->BLHK", p_BHLJ, v_BJHK)
        return jnp.einsum("BLHK,HKD->BLD", constrain_sharding(o_BLHK, "BLHK"), self.wo_HKD)


class Block(nn.Module):
    """One layer for all streams: the same attention and feed-forward, each normed after."""

    D: int
    H: int
    K: int
    F: int
    untied: bool
    activation: str
    dropout: float
    attention_dropout: float
    block: int
    initializer: tuple[str, float]
    dtype: str

    def setup(self):
        self.attention = Attention(
            self.D,
            self.H,
            self.K,
            self.untied,
            self.attention_dropout,
            self.block,
            self.initializer,
            self.dtype,
        )
        self.attention_norm = Norm()
        init = initializer(*self.initializer)
        self.ffn = FeedForward(
            self.F, self.activation, self.dropout, self.dropout, init, init, self.dtype
        )
        self.ffn_norm = Norm()
        self.drop = Dropout(self.dropout)

    def __call__(self, h_BLD, streams, views, memory_BMD, distances, tied, *, train: bool):
        """Computes the streams after this layer, each under its view.

        Args:
            h_BLD: the content, whose states behind those of the memory are the keys.
            streams: states that look; None is passed on as None.
        """
        kv_BJD = h_BLD if memory_BMD is None else jnp.concatenate([memory_BMD, h_BLD], axis=1)
        keys = self.attention.keys(kv_BJD, distances)

        def apply(x_BLD, view: AttentionView):
            a_BLD = self.attention(x_BLD, keys, view, tied, h_BLD.shape[1], train=train)
            x_BLD = self.attention_norm(x_BLD + self.drop(a_BLD, train=train))
            return constrain_sharding(self.ffn_norm(x_BLD + self.ffn(x_BLD, train=train)), "BLD")

        pairs = zip(streams, views, strict=True)
        return [None if x_BLD is None else apply(x_BLD, view) for x_BLD, view in pairs]
