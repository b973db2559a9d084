"""The layers of XLNet, scanned over: both streams, until the last layer computes one alone."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

from modules.kernels.unrolled_scan import scan_layers
from modules.layers import layer_stack
from modules.layers.relative_attention import Biases, Block, Distances
from modules.layers.segment_memory import update_memory
from modules.masks import AttentionView, Mask, at, make_view


class TwoStreamStack(nn.Module):
    """N layers of `relative_attention.Block`.

    Attributes: as `modules.backbones.two_stream.Backbone`.
    """

    D: int
    H: int
    K: int
    N: int
    F: int
    untie_r: bool
    activation: str
    dropout: float
    attention_dropout: float
    initializer: str
    init_scale: float
    dtype: str
    block: int
    remat: str
    unroll: int
    attention_form: str = "auto"

    def setup(self):
        if not self.untie_r:
            self.biases = Biases(self.H, self.K, (self.initializer, self.init_scale), self.dtype)
        self.layers = layer_stack.init_layer_stack(
            self, "layers", self._block(), self.N, *self._block_example(), train=False
        )

    def __call__(
        self,
        streams: list,
        views: list[AttentionView],
        last: AttentionView,
        memory_NBMD,
        distances: Distances,
        *,
        reuse_len: int = 0,
        train: bool,
        every: bool = False,
    ):
        """Applies all layers, of which the last computes the last stream alone.

        Args:
            streams: the content, [B, L, D], and the queries, [B, P, D], if there are some.
            views: of the streams.
            last: the view of the last layer's one stream.
            memory_NBMD: states that the layers have read before; None: no memory.
            reuse_len: see `update_memory`.
            every: also returns the content that every layer reads, [N, B, L, D].

        Returns:
            (the last layer's states, the new memory, the content of every layer or None).
        """
        # A key for each: layers of a scan share their program, and would share their draws.
        rngs = jax.random.split(self.make_rng("dropout"), self.N) if train else None
        layer = self._layer(distances, train)

        def step(streams, inputs):
            apply = layer_stack.REMAT[self.remat](functools.partial(layer, views))
            content_BLD = streams[0] if every else None
            return apply(streams, inputs), (
                update_memory(inputs[1], streams[0], reuse_len),
                content_BLD,
            )

        inputs = (self.layers, memory_NBMD, rngs)
        below, top = layer_stack.split_layers(inputs, (self.N - 1, 1))
        top = jax.tree.map(lambda x: x[0], top)
        streams, (below_NBMD, h_NBLD) = scan_layers(
            step, streams, below, self.N - 1, unroll=self.unroll, remat=self.remat
        )
        content_BLD = streams[0]
        if memory_NBMD is not None:
            top_1BMD = update_memory(top[1], content_BLD, reuse_len)[None]
            memory_NBMD = jnp.concatenate([below_NBMD, top_1BMD])
        h_NBLD = jnp.concatenate([h_NBLD, content_BLD[None]]) if every else None
        # Nobody reads the content after the last layer where there are queries, nor what is
        # between the slots: the layer's keys are made of all the content, its queries are few.
        queries = streams[-1] if len(streams) > 1 else at(content_BLD, last.slots_BP)
        return layer([last], [queries], top, content_BLD)[0], memory_NBMD, h_NBLD

    def flops(self, B: int, L: int, P: int, M: int = 0, has_queries: bool = False) -> float:
        D, A, J = self.D, self.H * self.K, M + L
        stream = 4 * D * A + 4 * D * self.F + 6 * J * A  # per position: q, o; feed-forward; scores
        # The last layer computes the P wanted states alone, and those before it the content, beside
        # which the queries are a stream of their own.
        queries = ((self.N - 1) * L + (self.N if has_queries else 1) * P) * stream
        keys = self.N * 4 * D * A * J
        distances = self.N * 2 * D * A * (M + 2 * L) / B  # once per batch
        # The backward pass stops at the memory: keys and values have no gradient by it.
        no_grad_of_memory = self.N * 4 * D * A * M
        return B * (3 * (queries + keys + distances) - no_grad_of_memory)

    def _layer(self, distances: Distances, train: bool):
        """Returns a function of views, streams and what a layer has for itself; see `Block`."""
        shared_biases = None if self.untie_r else self.biases()
        block = self._block()

        def apply(views, streams, inputs, content_BLD=None):
            weights, memory_BMD, rng = inputs
            content_BLD = streams[0] if content_BLD is None else content_BLD
            return block.apply(
                {"params": weights},
                content_BLD,
                streams,
                views,
                memory_BMD,
                distances,
                shared_biases,
                train=train,
                rngs={"dropout": rng} if train else {},
            )

        return apply

    def _block(self) -> Block:
        return Block(
            self.D,
            self.H,
            self.K,
            self.F,
            untie_r=self.untie_r,
            activation=self.activation,
            dropout=self.dropout,
            attention_dropout=self.attention_dropout,
            block=self.block,
            initializer=(self.initializer, self.init_scale),
            dtype=self.dtype,
            attention_form=self.attention_form,
            parent=None,
        )

    def _block_example(self) -> tuple[Any, ...]:
        """Returns the smallest arguments of a block, to make its parameters with."""
        x_BLD = jnp.zeros((1, 1, self.D), self.dtype)
        view = make_view(Mask(), 1, segments_BJ=jnp.zeros((1, 1), jnp.int32))
        shared_biases = None if self.untie_r else (jnp.zeros((self.H, self.K), self.dtype),) * 3
        distances = Distances(jnp.zeros((2, self.D), self.dtype))
        return x_BLD, [x_BLD], [view], None, distances, shared_biases
