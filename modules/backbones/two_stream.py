"""XLNet's backbone: a content stream that sees itself, a query stream that does not.

Yang et al. 2019 (arXiv 1906.08237), equal to the released code in arithmetic but not in work:
the query stream exists only at the predicted positions, keys and values serve both streams,
and no layer computes a stream that nobody reads.  Without queries it is a Transformer-XL.
"""

import functools
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
from flax import linen as nn

from modules.activation_sharding import constrain_sharding
from modules.backbones import Output, refuse_arguments, text_mask
from modules.layers import layer_stack
from modules.layers.dropout import Dropout
from modules.layers.params import (
    ACTIVATIONS,
    DTYPES,
    INITIALIZERS,
    check_choice,
    initializer,
    param,
    reshard_embedding_rows,
)
from modules.layers.relative_attention import AttentionView, Biases, Block, Distances, sinusoids
from modules.masks import Mask, at


@flax.struct.dataclass
class Memory:
    """What every layer has read of the M positions before a window; no gradient goes there."""

    h_NBMD: jax.Array


class Backbone(nn.Module):
    """Maps tokens to content states, or predicted positions to query states.

    Attributes:
        V, D, H, K, N, F: vocabulary, width, heads, width of a head, layers, feed-forward.
        M: positions of memory carried from window to window (the paper's mem_len); 0: none.
        reuse: how much of a window the memory keeps (reuse_len); 0: all of it.
        untied: biases of their own for every layer, as the released models have.
        attention: "bi" or "causal": how texts are read where no objective says so.
        same_length: so read, all positions see equally many keys of memory and text.
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
        check_choice(self, "attention", ("bi", "causal"))

    def setup(self):
        kind = (self.initializer, self.init_scale)
        init = initializer(*kind)
        self.token_VD = param(self, "token_VD", init, (self.V, self.D), decay=True, depth=0)
        # The released code leaves this one variable to TensorFlow's default initialiser.
        glorot = nn.initializers.glorot_uniform()
        self.query_1D = param(self, "query_1D", glorot, (1, self.D), decay=True, dtype=self.dtype)
        if not self.untied:
            self.biases = Biases(self.H, self.K, kind, self.dtype)
        self.drop = Dropout(self.dropout)
        self.layers = layer_stack.init_layer_stack(
            self, "layers", self._block(), self.N, *self._block_example(), train=False
        )

    @property
    def is_causal(self) -> bool:
        """Reads from left to right."""
        return self.attention == "causal"

    def __call__(
        self,
        tokens_BL,
        *,
        mask: Mask,
        segments_BL=None,
        positions_BL=None,
        slots_BP=None,
        memory: Memory | None = None,
        blind_BP=None,
        backward_B=None,
        reuse: int | None = None,
        train: bool,
    ) -> Output:
        """Computes states, see `modules.backbones.Backbone`; everything sees itself besides.

        Under a mask with `hides_slots` the states of the slots are the query stream's.

        Args:
            segments_BL: only whether two are equal matters.  The memory counts as segment 0,
                unless these are [B, M + L].
            blind_BP: False where a query starts from its token all the same; None: nowhere.
            backward_B: rows whose text stands in reverse; None: no such rows.
            reuse: in the place of the field.
        """
        refuse_arguments("a model of relative positions", positions_BL=positions_BL)
        B, L = tokens_BL.shape
        memory_NBMD = None if memory is None else memory.h_NBMD
        M = 0 if memory_NBMD is None else memory_NBMD.shape[2]
        embedded_BLD = self._embed(tokens_BL)
        streams = [constrain_sharding(self.drop(embedded_BLD, train=train), "BLD")]
        views, last = self._views(mask, _pad_segments(segments_BL, B, L, M), L, slots_BP)
        if mask.hides_slots and slots_BP is not None:
            streams.append(self._queries(embedded_BLD, slots_BP, blind_BP, train))
        distances = self._distances(B, L, M, backward_B, train)
        reuse = self.reuse if reuse is None else reuse
        h_BLD, memory_NBMD, _ = self._apply_layers(
            streams, views, last, memory_NBMD, distances, train, reuse
        )
        memory = None if memory_NBMD is None else Memory(memory_NBMD)
        return Output(self.drop(h_BLD, train=train), memory)

    def refusal(self, mask: Mask) -> str:
        """Says why a mask cannot be honoured; "": all masks can."""
        del mask
        return ""

    def layer_states(self, tokens_BL, *, mask: Mask, segments_BL=None, memory=None) -> Output:
        """Computes what every layer makes of the content, without dropout: [N + 1, B, L, D].

        The first is the tokens' embedding; the last is what a call gives.
        """
        if memory is not None:
            raise ValueError("layer_states reads whole rows, without a memory")
        B, L = tokens_BL.shape
        views, last = self._views(mask, _pad_segments(segments_BL, B, L, 0), L, None)
        streams, distances = [self._embed(tokens_BL)], self._distances(B, L, 0, None, train=False)
        h_BLD, _, h_NBLD = self._apply_layers(
            streams, views, last, None, distances, train=False, every=True
        )
        return Output(jnp.concatenate([h_NBLD, h_BLD[None]]))

    def initial_memory(self, B: int) -> Memory | None:
        """Returns zeros, which the released code attends to in its first window; None if M = 0."""
        shape = (self.N, B, self.M, self.D)
        return Memory(jnp.zeros(shape, self.dtype)) if self.M else None

    def table(self):
        """Returns the tokens' embedding, [V, D]."""
        return self.token_VD

    def example(self):
        """Returns the smallest tokens, to make the parameters with."""
        return jnp.zeros((1, 1), jnp.int32)

    def flops(self, B: int, L: int, P: int) -> float:
        """Counts the operations of a training step, see `modules.backbones.Backbone`."""
        D, A, J = self.D, self.H * self.K, self.M + L
        stream = 4 * D * A + 4 * D * self.F + 6 * J * A  # per position: q, o; feed-forward; scores
        queries = ((self.N - 1) * L + self.N * P) * stream
        keys = self.N * 4 * D * A * J
        distances = self.N * 2 * D * A * (self.M + 2 * L) / B  # once per batch
        no_slope_of_memory = self.N * 4 * D * A * self.M
        return B * (3 * (queries + keys + distances) - no_slope_of_memory)

    # --- parts -------------------------------------------------------------------------------

    def _embed(self, tokens_BL):
        return reshard_embedding_rows(self.token_VD[tokens_BL].astype(self.dtype), self.V)

    def _queries(self, embedded_BLD, slots_BP, blind_BP, train: bool):
        """Returns where the query stream starts: one learned vector, whatever the token."""
        g_BPD = jnp.broadcast_to(self.query_1D, (*slots_BP.shape, self.D))
        if blind_BP is not None:
            own_BPD = jnp.take_along_axis(embedded_BLD, slots_BP[..., None], axis=1)
            g_BPD = jnp.where(blind_BP[..., None], g_BPD, own_BPD)
        return constrain_sharding(self.drop(g_BPD, train=train), "BPD")

    def _views(self, mask: Mask, segments_BJ, L: int, slots_BP):
        """Returns the views of all streams, and that of the last layer's one stream."""
        J = segments_BJ.shape[1]
        M, segments_BL = J - L, segments_BJ[:, J - L :]
        visible = mask.dense(L, J) | jnp.eye(L, J, M, dtype=bool)
        content = AttentionView(visible[:, None], _differs(segments_BL, segments_BJ))
        if slots_BP is None:
            return [content], content
        seen = mask.dense(L, J, slots_BP)
        if not mask.hides_slots:
            seen |= jnp.arange(J) == slots_BP[..., None] + M
        own_BP = jnp.take_along_axis(segments_BL, slots_BP, axis=1)
        last = AttentionView(seen[:, None], _differs(own_BP, segments_BJ), slots_BP)
        return [content, last] if mask.hides_slots else [content], last

    def _distances(self, B: int, L: int, M: int, backward_B, train: bool) -> Distances:
        table = sinusoids(L, M, self.D, clamp=self.clamp)
        if backward_B is not None:
            mirrored = sinusoids(L, M, self.D, clamp=self.clamp, backward=True)
            table = jnp.stack([table, mirrored])
        if not self.shared_distances:
            index_B = (
                jnp.zeros(B, jnp.int32) if backward_B is None else backward_B.astype(jnp.int32)
            )
            table, backward_B = table.reshape(-1, *table.shape[-2:])[index_B], None
        return Distances(self.drop(table.astype(self.dtype), train=train), backward_B)

    def _apply_layers(
        self, streams, views, last, memory_NBMD, distances, train, reuse=0, every=False
    ):
        """Applies all layers, of which the last computes the last stream alone.

        Returns:
            (its states, the new memory, the content that every layer reads [N, B, L, D]).
        """
        tied = None if self.untied else self.biases()
        rngs = jax.random.split(self.make_rng("dropout"), self.N) if train else None
        block = self._block()

        def layer(views, streams, own, content_BLD=None):
            weights, memory_BMD, rng = own
            content_BLD = streams[0] if content_BLD is None else content_BLD
            return block.apply(
                {"params": weights},
                content_BLD,
                streams,
                views,
                memory_BMD,
                distances,
                tied,
                train=train,
                rngs={"dropout": rng} if train else {},
            )

        def step(streams, own):
            apply = layer_stack.REMAT[self.remat](functools.partial(layer, views))
            content_BLD = streams[0] if every else None
            return apply(streams, own), (_update_memory(own[1], streams[0], reuse), content_BLD)

        below, top = layer_stack.split_layers((self.layers, memory_NBMD, rngs), (self.N - 1, 1))
        top = jax.tree.map(lambda x: x[0], top)
        streams, (kept, h_NBLD) = jax.lax.scan(step, streams, below, self.N - 1, unroll=self.unroll)
        content_BLD = streams[0]
        if memory_NBMD is not None:
            last_1BMD = _update_memory(top[1], content_BLD, reuse)[None]
            memory_NBMD = jnp.concatenate([kept, last_1BMD])
        h_NBLD = jnp.concatenate([h_NBLD, content_BLD[None]]) if every else None
        looks = streams[-1] if len(streams) > 1 else at(content_BLD, last.slots_BP)
        return layer([last], [looks], top, content_BLD)[0], memory_NBMD, h_NBLD

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

    def _block_example(self):
        """Returns the smallest arguments of a block, to make its parameters with."""
        x_BLD = jnp.zeros((1, 1, self.D), self.dtype)
        seen = jnp.ones((1, 1, 1, 1), bool)
        tied = None if self.untied else (jnp.zeros((self.H, self.K), self.dtype),) * 3
        distances = Distances(jnp.zeros((2, self.D), self.dtype))
        return x_BLD, [x_BLD], [AttentionView(seen, seen)], None, distances, tied


def encode_windows(backbone: Any, tokens_BL, valid_BL, L: int, *, train: bool, segments_BL=None):
    """Reads rows by windows of L, each with the memory of the M positions before it: [B, L, D].

    No gradient goes through the memory.  Dai et al. 2019 (arXiv 1901.02860).
    """
    M = backbone.M
    memory = backbone.initial_memory(len(tokens_BL))
    segments_BL = jnp.zeros_like(tokens_BL) if segments_BL is None else segments_BL
    valid_BJ = jnp.pad(valid_BL, ((0, 0), (M, 0)))
    segments_BJ = jnp.pad(segments_BL, ((0, 0), (M, 0)))
    windows: list[Any] = []
    for begin in range(0, tokens_BL.shape[1], L):
        seen = slice(begin, begin + M + L)  # of what has M positions more in front
        mask = text_mask(
            backbone,
            memory_BM=valid_BJ[:, begin : begin + M],
            valid_BL=valid_BL[:, begin : begin + L],
        )
        h_BLD, memory = backbone(
            tokens_BL[:, begin : begin + L],
            mask=mask,
            segments_BL=segments_BJ[:, seen],
            memory=memory,
            reuse=0,
            train=train,
        )
        windows.append(h_BLD)
    return jnp.concatenate(windows, axis=1)


def _pad_segments(segments_BL, B: int, L: int, M: int):
    """Puts segment 0 of the memory in front, [B, M + L]; None: all are of one segment."""
    segments_BL = jnp.zeros((B, L), jnp.int32) if segments_BL is None else segments_BL
    return jnp.pad(segments_BL, ((0, 0), (M + L - segments_BL.shape[1], 0)))


def _update_memory(memory_BMD, h_BLD, reuse: int):
    """Returns the last M of the old memory and of the reused part of a window."""
    if memory_BMD is None:
        return None
    kept_BLD = h_BLD[:, : reuse or None].astype(memory_BMD.dtype)
    kept_BMD = jnp.concatenate([memory_BMD, kept_BLD], axis=1)[:, -memory_BMD.shape[1] :]
    return jax.lax.stop_gradient(constrain_sharding(kept_BMD, "BMD"))


def _differs(segments_BL, segments_BJ):
    """Compares segments of queries and keys, for all heads: bool [B, 1, L, J]."""
    return (segments_BL[:, :, None] != segments_BJ[:, None, :])[:, None]
