"""XLNet's backbone: a content stream that sees itself, a query stream that does not.

Yang et al. 2019 (arXiv 1906.08237), equal to the released code in arithmetic but not in work:
the query stream exists only at the predicted positions, keys and values serve both streams,
and no layer computes a stream that nobody reads.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn

from modules import masks
from modules.activation_sharding import constrain_sharding
from modules.kernels.softmax import softmax
from modules.layers import layer_stack, relative_attention
from modules.layers.dropout import Dropout
from modules.layers.feed_forward import FeedForward
from modules.layers.norm import Norm
from modules.layers.params import (
    ACTIVATIONS,
    DTYPES,
    INITIALIZERS,
    check_choice,
    initializer,
    param,
    reshard_embedding_rows,
    zeros,
)
from modules.losses import cross_entropy


class View(NamedTuple):
    """How the queries of one stream lie to the keys; the same in every layer."""

    visible: jax.Array  # bool, broadcasts to [B, H, L, J]
    differs: jax.Array  # bool, likewise: the key is of another segment
    slots_BP: jax.Array | None = None  # the queries' positions; None: all L in order


class Streams(NamedTuple):
    """What the backbone returns; None where there was nothing to compute."""

    h_BLD: jax.Array | None
    g_BPD: jax.Array | None
    memory_NBMD: jax.Array | None


class Distances(NamedTuple):
    """Sinusoids of every distance: [R, D], [2, R, D] (by direction) or [B, R, D] (by example)."""

    table: jax.Array
    backward_B: jax.Array | None = None  # which of the two a row reads


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
        """Keys, values and distances, each projected once for all streams."""
        k_BJHK = constrain_sharding(jnp.einsum("BJD,DHK->BJHK", kv_BJD, self.wk_DHK), "BJHK")
        v_BJHK = constrain_sharding(jnp.einsum("BJD,DHK->BJHK", kv_BJD, self.wv_DHK), "BJHK")
        r = jnp.einsum("...RD,DHK->...RHK", distances.table, self.wr_DHK)
        if distances.backward_B is not None:
            r = jnp.where(distances.backward_B[:, None, None, None], r[1], r[0])
        return k_BJHK, v_BJHK, r

    def __call__(self, x_BLD, keys, view: View, tied, L: int, *, train: bool):
        k_BJHK, v_BJHK, r = keys
        content_HK, position_HK, segment_HK = self.biases() if self.untied else tied
        scale = self.K**-0.5
        q_BLHK = constrain_sharding(jnp.einsum("BLD,DHK->BLHK", x_BLD, self.wq_DHK), "BLHK")

        a_BHLJ = jnp.einsum("BLHK,BJHK->BHLJ", (q_BLHK + content_HK) * scale, k_BJHK)
        q_position_BLHK = (q_BLHK + position_HK) * scale
        if view.slots_BP is None:
            a_BHLJ += relative_attention.scores(q_position_BLHK, r, self.block)
        else:
            a_BHLJ += relative_attention.scores_at(q_position_BLHK, r, view.slots_BP, L)
        # A softmax ignores what a row has in common: only the segments' difference counts.
        other_HK = self.segment_SHK[1] - self.segment_SHK[0]
        e_BHL = jnp.einsum("BLHK,HK->BHL", (q_BLHK + segment_HK) * scale, other_HK)
        a_BHLJ += jnp.where(view.differs, e_BHL[..., None], 0)

        p_BHLJ = softmax(a_BHLJ, view.visible, x_BLD.dtype)
        p_BHLJ = self.drop(p_BHLJ, train=train)
        o_BLHK = constrain_sharding(jnp.einsum("BHLJ,BJHK->BLHK", p_BHLJ, v_BJHK), "BLHK")
        return jnp.einsum("BLHK,HKD->BLD", o_BLHK, self.wo_HKD)


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

    def __call__(self, streams, views, memory_BMD, distances, tied, *, train: bool):
        """The streams after this layer; the first is the content, whose states are the keys.

        A stream without a view (None) is not carried on.
        """
        h_BLD = streams[0]
        kv_BJD = h_BLD if memory_BMD is None else jnp.concatenate([memory_BMD, h_BLD], axis=1)
        keys = self.attention.keys(kv_BJD, distances)

        def through(x_BLD, view):
            a_BLD = self.attention(x_BLD, keys, view, tied, h_BLD.shape[1], train=train)
            x_BLD = self.attention_norm(x_BLD + self.drop(a_BLD, train=train))
            return constrain_sharding(self.ffn_norm(x_BLD + self.ffn(x_BLD, train=train)), "BLD")

        pairs = zip(streams, views, strict=True)
        return [None if view is None else through(x, view) for x, view in pairs]


class Backbone(nn.Module):
    """Tokens to content states, predicted positions to query states.

    Attributes:
        V, D, H, K, N, F: vocabulary, width, heads, width of a head, layers, feed-forward.
        M: positions of memory carried from window to window (the paper's mem_len); 0: none.
        reuse: how much of a window the memory keeps (reuse_len); 0: all of it.
        untied: biases of their own for every layer, as the released models have.
        attention: "bi", or "uni" for left to right.
        same_length: with "uni", every position sees equally many keys.
        clamp: distances beyond this count as this; -1: off.
        shared_distances: one dropout mask on the distances for the whole batch, which are then
            projected once.  False draws one per example, as the released code.
        initializer, init_scale: "normal" and its deviation, or "uniform" and its range.
        block: query rows whose distances are scored together.
        remat: what the backward pass computes again: "none", "dots" (all but products of
            weights) or "full".
        unroll: layers per step of the scan over layers.
    """

    V: int
    D: int = 768
    H: int = 12
    K: int = 64
    N: int = 12
    F: int = 3072
    M: int = 0
    reuse: int = 0
    untied: bool = True
    attention: str = "bi"
    same_length: bool = False
    clamp: int = -1
    activation: str = "gelu"
    dropout: float = 0.1
    attention_dropout: float = 0.1
    shared_distances: bool = True
    initializer: str = "normal"
    init_scale: float = 0.02
    dtype: str = "float32"
    block: int = 128
    remat: str = "none"
    unroll: int = 1

    def __post_init__(self):
        super().__post_init__()
        check_choice(self, "activation", ACTIVATIONS)
        check_choice(self, "remat", layer_stack.REMAT)
        check_choice(self, "dtype", DTYPES)
        check_choice(self, "initializer", INITIALIZERS)
        check_choice(self, "attention", ("bi", "uni"))

    def setup(self):
        kind = (self.initializer, self.init_scale)
        init = initializer(*kind)
        self.token_VD = param(self, "token_VD", init, (self.V, self.D), decay=True, depth=0)
        # The released code leaves this one variable to TensorFlow's default initialiser.
        glorot = nn.initializers.glorot_uniform()
        self.query_1D = param(self, "query_1D", glorot, (1, self.D), decay=True, dtype=self.dtype)
        self.bias_V = param(self, "bias_V", zeros, (self.V,), decay=False)
        if not self.untied:
            self.biases = Biases(self.H, self.K, kind, self.dtype)
        self.drop = Dropout(self.dropout)
        self.layers = layer_stack.init_layer_stack(
            self, "layers", self._block(), self.N, *self._example(), train=False
        )

    def encode(self, tokens_BL, valid_BL, *, train: bool, segments_BL=None):
        """The content stream alone, every position seeing all the real ones: h_BLD."""
        return self(tokens_BL, segments_BL, content=masks.full(valid_BL), train=train).h_BLD

    def encode_windows(self, tokens_BL, valid_BL, L: int, *, train: bool, segments_BL=None):
        """`encode` by windows of L, each with the memory of the M positions before it.

        No gradient goes through the memory.  Dai et al. 2019 (arXiv 1901.02860).
        """
        B = len(tokens_BL)
        if segments_BL is None:
            segments_BL = jnp.zeros_like(tokens_BL)
        memory_NBMD: jax.Array | None = jnp.zeros((self.N, B, self.M, self.D), self.dtype)
        valid_BJ = jnp.pad(valid_BL, ((0, 0), (self.M, 0)))
        segments_BJ = jnp.pad(segments_BL, ((0, 0), (self.M, 0)))
        found: list[Any] = []
        for at in range(0, tokens_BL.shape[1], L):
            seen = slice(at, at + self.M + L)  # of what has M positions more in front
            streams = self(
                tokens_BL[:, at : at + L],
                segments_BJ[:, seen],
                content=valid_BJ[:, None, seen],
                memory_NBMD=memory_NBMD,
                reuse=0,
                train=train,
            )
            memory_NBMD = streams.memory_NBMD
            found.append(streams.h_BLD)
        return jnp.concatenate(found, axis=1)

    def states(self, tokens_BL, valid_BL, *, segments_BL=None):
        """What every layer makes of the content, [N + 1, B, L, D], without dropout.

        The first is the tokens' embedding, which the first layer reads; the last is what `encode`
        gives.
        """
        B, L = tokens_BL.shape
        segments_BL = jnp.zeros_like(tokens_BL) if segments_BL is None else segments_BL
        x_BLD = self._embed(tokens_BL)
        views = [self._content_view(masks.full(valid_BL), segments_BL, 0)]
        distances = self._distances(B, L, 0, None, train=False)
        streams, _, h_NBLD = self._through([x_BLD], views, None, distances, train=False, every=True)
        return jnp.concatenate([h_NBLD, streams[-1][None]])

    def example(self):
        """The smallest tokens, to make the parameters with."""
        return jnp.zeros((1, 1), jnp.int32)

    def logits(self, h_BLD):
        """Scores of the vocabulary, tied to the embedding: [B, L, V] float32."""
        w_VD = self.token_VD.astype(h_BLD.dtype)
        logits = jnp.einsum("BLD,VD->BLV", h_BLD, w_VD, preferred_element_type=jnp.float32)
        return logits + self.bias_V

    def cross_entropy(self, h_BPD, targets_BP, weights_BP, *, chunks: int, train: bool = False):
        """`cross_entropy.softmax_cross_entropy` of the tied softmax: the same without the
        logits."""
        del train  # nothing is dropped here
        return cross_entropy.softmax_cross_entropy(
            h_BPD, self.token_VD, self.bias_V, targets_BP, weights_BP, chunks=chunks
        )

    def flops(self, B: int, L: int, P: int) -> float:
        """Floating-point operations of a training step on [B, L] with P predicted positions.

        Products only, a multiply-add as two, backward as twice forward; what a step executes
        beyond that - recomputation, rows of the distance scores nobody reads - is not counted.
        """
        D, A, J = self.D, self.H * self.K, self.M + L
        stream = 4 * D * A + 4 * D * self.F + 6 * J * A  # per position: q, o; feed-forward; scores
        queries = ((self.N - 1) * L + self.N * P) * stream
        keys = self.N * 4 * D * A * J
        distances = self.N * 2 * D * A * (self.M + 2 * L) / B  # once per batch
        head = 2 * P * D * self.V
        no_slope_of_memory = self.N * 4 * D * A * self.M
        return B * (3 * (queries + keys + distances + head) - no_slope_of_memory)

    def __call__(
        self,
        tokens_BL,
        segments_BL=None,
        *,
        content=None,
        slots_BP=None,
        query=None,
        blind_BP=None,
        memory_NBMD=None,
        backward_B=None,
        reuse: int | None = None,
        train: bool,
    ) -> Streams:
        """Both streams, or the content alone where there are no slots.

        Args:
            tokens_BL, segments_BL: ids; only whether two segments are equal matters.  Memory
                counts as segment 0, unless these are [B, M + L].  None: one segment.
            content: bool, [B or 1, L or 1, J]: what each position sees of memory and
                sequence.  Everything sees itself besides.  None: all.
            slots_BP: predicted positions; with them comes `query`, bool [B, P, J].
            blind_BP: False where a query starts from its token instead of knowing the place
                alone.  None: all blind.
            memory_NBMD: the layers' inputs of earlier windows; None: no memory.
            backward_B: rows read from right to left; None: no such rows.
            reuse: in the place of the field.
        """
        B, L = tokens_BL.shape
        M = 0 if memory_NBMD is None else memory_NBMD.shape[2]
        segments_BJ = jnp.zeros_like(tokens_BL) if segments_BL is None else segments_BL
        segments_BJ = jnp.pad(segments_BJ, ((0, 0), (M + L - segments_BJ.shape[1], 0)))
        embedded_BLD = self._embed(tokens_BL)
        streams = [constrain_sharding(self.drop(embedded_BLD, train=train), "BLD")]
        views = [self._content_view(content, segments_BJ, M)]
        if slots_BP is not None:
            streams.append(self._queries(embedded_BLD, slots_BP, blind_BP, train))
            views.append(self._query_view(query, segments_BJ, slots_BP, M))
        distances = self._distances(B, L, M, backward_B, train)
        reuse = self.reuse if reuse is None else reuse
        streams, memory_NBMD, _ = self._through(
            streams, views, memory_NBMD, distances, train, reuse
        )
        last = self.drop(streams[-1], train=train)
        if slots_BP is None:
            return Streams(last, None, memory_NBMD)
        return Streams(None, last, memory_NBMD)

    def _embed(self, tokens_BL):
        return reshard_embedding_rows(self.token_VD[tokens_BL].astype(self.dtype), self.V)

    def _queries(self, embedded_BLD, slots_BP, blind_BP, train):
        """Where the query stream starts: one learned vector, whatever the token."""
        g_BPD = jnp.broadcast_to(self.query_1D, (*slots_BP.shape, self.D))
        if blind_BP is not None:
            own_BPD = jnp.take_along_axis(embedded_BLD, slots_BP[..., None], axis=1)
            g_BPD = jnp.where(blind_BP[..., None], g_BPD, own_BPD)
        return constrain_sharding(self.drop(g_BPD, train=train), "BPD")

    def _content_view(self, content, segments_BJ, M: int) -> View:
        L = segments_BJ.shape[1] - M
        visible = jnp.ones((1, L, M + L), bool) if content is None else content
        visible |= jnp.eye(L, M + L, M, dtype=bool)
        if self.attention == "uni":
            visible &= masks.causal(L, M + L, self.same_length)
        return View(visible[:, None], _differs(segments_BJ[:, M:], segments_BJ)[:, None])

    def _query_view(self, query, segments_BJ, slots_BP, M: int) -> View:
        L = segments_BJ.shape[1] - M
        if self.attention == "uni":
            query &= masks.causal(L, M + L, self.same_length)[0][slots_BP]
        segments_BP = jnp.take_along_axis(segments_BJ[:, M:], slots_BP, axis=1)
        return View(query[:, None], _differs(segments_BP, segments_BJ)[:, None], slots_BP)

    def _distances(self, B: int, L: int, M: int, backward_B, train) -> Distances:
        table = relative_attention.sinusoids(L, M, self.D, clamp=self.clamp)
        if backward_B is not None:
            mirrored = relative_attention.sinusoids(L, M, self.D, clamp=self.clamp, backward=True)
            table = jnp.stack([table, mirrored])
        if not self.shared_distances:
            index_B = (
                jnp.zeros(B, jnp.int32) if backward_B is None else backward_B.astype(jnp.int32)
            )
            table, backward_B = table.reshape(-1, *table.shape[-2:])[index_B], None
        return Distances(self.drop(table.astype(self.dtype), train=train), backward_B)

    def _through(self, streams, views, memory_NBMD, distances, train, reuse=0, every=False):
        """All layers, of which the last computes the last stream only; and the new memory.

        And the content that `every` layer reads, [N, B, L, D].
        """
        tied = None if self.untied else self.biases()
        rngs = jax.random.split(self.make_rng("dropout"), self.N) if train else None
        block, only_last = self._block(), [None] * (len(views) - 1) + views[-1:]

        def layer(views, streams, own):
            params, memory_BMD, rng = own
            return block.apply(
                {"params": params},
                streams,
                views,
                memory_BMD,
                distances,
                tied,
                train=train,
                rngs={"dropout": rng} if train else {},
            )

        def step(streams, own):
            through = layer_stack.REMAT[self.remat](functools.partial(layer, views))
            content_BLD = streams[0] if every else None
            return through(streams, own), (_remember(own[1], streams[0], reuse), content_BLD)

        below, top = layer_stack.split_layers((self.layers, memory_NBMD, rngs), (self.N - 1, 1))
        top = jax.tree.map(lambda x: x[0], top)
        streams, (kept, h_NBLD) = jax.lax.scan(step, streams, below, self.N - 1, unroll=self.unroll)
        if memory_NBMD is not None:
            last_1BMD = _remember(top[1], streams[0], reuse)[None]
            memory_NBMD = jnp.concatenate([kept, last_1BMD])
        h_NBLD = jnp.concatenate([h_NBLD, streams[0][None]]) if every else None
        return layer(only_last, streams, top), memory_NBMD, h_NBLD

    def _block(self) -> Block:
        return Block(
            self.D,
            self.H,
            self.K,
            self.F,
            self.untied,
            self.activation,
            self.dropout,
            self.attention_dropout,
            self.block,
            (self.initializer, self.init_scale),
            self.dtype,
            parent=None,
        )

    def _example(self):
        """The smallest arguments of a block, to make its parameters with."""
        x_BLD = jnp.zeros((1, 1, self.D), self.dtype)
        seen = jnp.ones((1, 1, 1, 1), bool)
        tied = None if self.untied else (jnp.zeros((self.H, self.K), self.dtype),) * 3
        distances = Distances(jnp.zeros((2, self.D), self.dtype))
        return [x_BLD], [View(seen, seen)], None, distances, tied


def _remember(memory_BMD, h_BLD, reuse: int):
    """What the next window finds: the last M of the old memory and of the reused part."""
    if memory_BMD is None:
        return None
    kept_BLD = h_BLD[:, : reuse or None].astype(memory_BMD.dtype)
    kept_BMD = jnp.concatenate([memory_BMD, kept_BLD], axis=1)[:, -memory_BMD.shape[1] :]
    return jax.lax.stop_gradient(constrain_sharding(kept_BMD, "BMD"))


def _differs(segments_BL, segments_BJ):
    """[B, L, J]: the key is of another segment."""
    return segments_BL[:, :, None] != segments_BJ[:, None, :]
