"""Attention with relative positions (Dai et al. 2019, arXiv 1901.02860), and one layer of it.

The score of a query with the distance to its key is added to that with the key itself.

Tables of distances run from the furthest back down to -L, see `modules.kernels.distance_scores`.
"""

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn

from modules.activation_sharding import choose_form, constrain_sharding
from modules.kernels.attention import attend
from modules.kernels.dense import dense
from modules.kernels.distance_scores import RelativeTerms
from modules.layers.dropout import Dropout
from modules.layers.feed_forward import FeedForward
from modules.layers.norm import Norm
from modules.layers.params import initializer, param
from modules.masks import AttentionView, Mask, make_view


def compute_sinusoids(L: int, M: int, D: int, *, clamp_len: int = -1, is_backward: bool = False):
    """Computes sines, then cosines, of every distance: [R, D] float32, R = M + 2L.

    Args:
        L, M, D: positions of the sequence and of the memory; width.
        clamp_len: distances are clipped to this; -1: not (Transformer-XL's code).
        is_backward: rows are read from right to left, where distances change sign.
    """
    distance_R = jnp.arange(M + L - 1, -L - 1, -1.0)
    distance_R = -distance_R if is_backward else distance_R
    if clamp_len > 0:
        distance_R = jnp.clip(distance_R, -clamp_len, clamp_len)
    frequency_D = 10000.0 ** -(jnp.arange(0, D, 2) / D)
    angle_RD = distance_R[:, None] * frequency_D
    # Not interleaved as in Vaswani et al.: Transformer-XL and XLNet put all sines first.
    return jnp.concatenate([jnp.sin(angle_RD), jnp.cos(angle_RD)], axis=-1)


# --- a layer ---------------------------------------------------------------------------------


class Distances(NamedTuple):
    """Sinusoids of every distance: [R, D], [2, R, D] (by direction) or [B, R, D] (by example).

    Attributes:
        backward_B: which of the two directions a row reads.
    """

    table: jax.Array
    backward_B: jax.Array | None = None


def make_views(
    mask: Mask, segments_BJ, L: int, slots_BP
) -> tuple[list[AttentionView], AttentionView]:
    """Makes the views of all streams, and that of the last layer's one stream.

    Args:
        segments_BJ: of the memory's positions, then of the sequence's L.
        slots_BP: positions whose states are wanted; None: all.
    """
    view = functools.partial(make_view, mask, L, segments_BJ.shape[1], segments_BJ=segments_BJ)
    # The content sees its own token, whatever the mask: as in the released code.
    content = view(sees_itself=True)
    if slots_BP is None:
        return [content], content
    last = view(slots_BP=slots_BP, sees_itself=not mask.hides_slots)
    return [content, last] if mask.hides_slots else [content], last


def make_distances(
    L: int, M: int, D: int, clamp_len: int, backward_B, num_tables: int = 0
) -> Distances:
    """Makes the sinusoids of all distances.

    Args:
        backward_B: rows whose text stands in reverse; None: no such rows.
        num_tables: B: a table for each example; 0: one for all.
    """
    table = compute_sinusoids(L, M, D, clamp_len=clamp_len)
    if backward_B is not None:
        mirrored = compute_sinusoids(L, M, D, clamp_len=clamp_len, is_backward=True)
        table = jnp.stack([table, mirrored])
    if not num_tables:
        return Distances(table, backward_B)
    index_B = (
        jnp.zeros(num_tables, jnp.int32) if backward_B is None else backward_B.astype(jnp.int32)
    )
    # A table for each example costs B times the memory, and lets dropout draw a mask for each.
    return Distances(table.reshape(-1, *table.shape[-2:])[index_B])


class Biases(nn.Module):
    """Added to every query before it meets a content, a position, a segment (the papers' u, v)."""

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
    """Relative attention with a bias for content, position and segment each.

    Attributes:
        untie_r: the layer has biases of its own.
        block: query rows whose distances are scored together.
        initializer: a key of `params.INITIALIZERS` and its scale.
        form: see `modules.kernels.attention.attend`.
    """

    D: int
    H: int
    K: int
    untie_r: bool
    dropout: float
    block: int
    initializer: tuple[str, float]
    dtype: str
    form: str = "auto"

    def setup(self):
        D, H, K, init = self.D, self.H, self.K, initializer(*self.initializer)
        self.wq_DHK = param(self, "wq_DHK", init, (D, H, K), decay=True, dtype=self.dtype)
        self.wk_DHK = param(self, "wk_DHK", init, (D, H, K), decay=True, dtype=self.dtype)
        self.wv_DHK = param(self, "wv_DHK", init, (D, H, K), decay=True, dtype=self.dtype)
        self.wr_DHK = param(self, "wr_DHK", init, (D, H, K), decay=True, dtype=self.dtype)
        self.wo_HKD = param(self, "wo_HKD", init, (H, K, D), decay=True, dtype=self.dtype)
        self.segment_SHK = param(self, "segment_SHK", init, (2, H, K), decay=True, dtype=self.dtype)
        if self.untie_r:
            self.biases = Biases(H, K, self.initializer, self.dtype)
        self.drop = Dropout(self.dropout)

    def project_keys(self, kv_BJD, distances: Distances, M: int = 0):
        # Each once for all streams.
        k_BJHK, v_BJHK = (project(kv_BJD, w_DHK, M) for w_DHK in (self.wk_DHK, self.wv_DHK))
        k_BJHK, v_BJHK = (constrain_sharding(x, "BJHK") for x in (k_BJHK, v_BJHK))
        r = jnp.einsum("...RD,DHK->...RHK", distances.table, self.wr_DHK)
        # Both directions are projected once; each row reads its own.
        return k_BJHK, v_BJHK, r, distances.backward_B

    def __call__(self, x_BLD, keys, view: AttentionView, shared_biases, *, train: bool):
        """Attends to the keys: [B, L, D].

        Args:
            x_BLD: queries.
            keys: of `project_keys`.
            shared_biases: `Biases` of all layers; not read by a layer that has its own.
        """
        k_BJHK, v_BJHK, r, backward_B = keys
        content_HK, position_HK, segment_HK = self.biases() if self.untie_r else shared_biases
        q_BLHK = constrain_sharding(project(x_BLD, self.wq_DHK), "BLHK")
        # A softmax ignores what a row has in common: only the segments' difference counts.
        other_HK = self.segment_SHK[1] - self.segment_SHK[0]
        relative = RelativeTerms(
            content_HK, position_HK, segment_HK, other_HK, r, backward_B, self.block
        )
        dropout = self.drop.make_key(train=train)
        o_BLHK = attend(q_BLHK, k_BJHK, v_BJHK, view, relative, dropout, self.form)
        o_BLF = constrain_sharding(o_BLHK, "BLHK").reshape(*o_BLHK.shape[:2], -1)
        return dense(o_BLF, self.wo_HKD.reshape(-1, self.D))


def project(x_BLD, w_DHK, M: int = 0):
    """Projects states, the first M of a memory, for every head: [B, L, H, K]."""
    # As two dimensions: `dense` computes the weight's gradient by one large product.
    w_DF = w_DHK.reshape(len(w_DHK), -1)
    return dense(x_BLD, w_DF, M).reshape(*x_BLD.shape[:2], *w_DHK.shape[1:])


class Block(nn.Module):
    """A layer for all streams: the same attention and feed-forward, a norm after each sum."""

    D: int
    H: int
    K: int
    F: int
    untie_r: bool
    activation: str
    dropout: float
    attention_dropout: float
    block: int
    initializer: tuple[str, float]
    dtype: str
    attention_form: str = "auto"

    def setup(self):
        self.attention = Attention(
            self.D,
            self.H,
            self.K,
            self.untie_r,
            self.attention_dropout,
            self.block,
            self.initializer,
            self.dtype,
            self.attention_form,
        )
        # With `Norm`'s epsilon of 1e-12, that of the released code.
        self.attention_norm = Norm()
        init = initializer(*self.initializer)
        self.ffn = FeedForward(
            self.F, self.activation, self.dropout, self.dropout, init, init, self.dtype
        )
        self.ffn_norm = Norm()
        self.drop = Dropout(self.dropout)

    def __call__(self, h_BLD, streams, views, memory_BMD, distances, shared_biases, *, train: bool):
        """Computes the streams after this layer, each under its view.

        Args:
            h_BLD: the content stream; its states, behind those of the memory, are the keys.
            streams: states of the queries, [B, L, D] or [B, P, D].
        """
        # The memory stands before the sequence, as its text did.
        kv_BJD = h_BLD if memory_BMD is None else jnp.concatenate([memory_BMD, h_BLD], axis=1)
        M = kv_BJD.shape[1] - h_BLD.shape[1]
        keys = self.attention.project_keys(kv_BJD, distances, M)

        def read(x_BLD, view: AttentionView):
            a_BLD = self.attention(x_BLD, keys, view, shared_biases, train=train)
            return self.attention_norm(x_BLD + self.drop(a_BLD, train=train))

        def transform(x_BLD):
            return self.ffn_norm(x_BLD + self.ffn(x_BLD, train=train))

        streams = [read(x_BLD, view) for x_BLD, view in zip(streams, views, strict=True)]
        streams = choose_form(STREAM_FORMS)(transform, streams)
        return [constrain_sharding(x_BLD, "BLD") for x_BLD in streams]


def transform_each(transform: Callable, streams: Sequence) -> list:
    """Applies a function of each position, [B, L, D] to the same, to every stream."""
    return [transform(x_BLD) for x_BLD in streams]


def transform_joined(transform: Callable, streams: Sequence) -> list:
    """Computes `transform_each` of all streams at once; dropout has other draws."""
    ends = list(itertools.accumulate(x_BLD.shape[1] for x_BLD in streams))
    return jnp.split(transform(jnp.concatenate(streams, axis=1)), ends[:-1], axis=1)


# The compiler for GPUs joins the products of all streams, and would copy what is F wide for it.
STREAM_FORMS = {"gpu": transform_joined, "default": transform_each}
