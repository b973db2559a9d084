"""The layers of BERT and GPT, scanned over; where only some positions are read, the last computes
those alone."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

from modules.activation_sharding import gather_positions
from modules.kernels.unrolled_scan import scan_layers
from modules.layers import layer_stack
from modules.layers.attention import Block, KVCache
from modules.layers.norm import Norm
from modules.layers.params import initializer
from modules.masks import AttentionView, Mask, make_view


class TransformerStack(nn.Module):
    """N layers of `attention.Block`; fields as of `modules.backbones.transformer.Backbone`."""

    D: int
    H: int
    K: int
    N: int
    F: int
    attention: str
    norm: str
    window: int
    activation: str
    epsilon: float
    dropout: float
    attention_dropout: float
    initializer: str
    init_scale: float
    residual_scale: bool
    dtype: str
    remat: str
    unroll: int
    attention_form: str = "auto"

    def setup(self):
        if self.norm == "pre":
            self.final_norm = Norm(self.epsilon)
        example = jnp.zeros((1, 1, self.D), self.dtype), make_view(Mask(), 1)
        self.layers = layer_stack.init_layer_stack(
            self, "layers", self._block(), self.N, *example, train=False
        )

    def __call__(self, x_BLD, mask: Mask, slots_BP, *, train: bool, every: bool = False):
        """Applies all layers to whole rows, and the norm at the end if there is one.

        Args:
            slots_BP: positions whose states are wanted; None: all.
            every: also returns the states after each layer, [N, B, L, D]; without slots alone.

        Returns:
            (states, states after each layer or None).
        """
        L = x_BLD.shape[1]
        view = functools.partial(make_view, mask, L, window=self.window)
        layer = layer_stack.REMAT[self.remat](self._layer(view(), train))
        stack = self._stack_inputs(train)
        execution: dict[str, Any] = dict(unroll=self.unroll, remat=self.remat)

        def step(x_BLD, inputs):
            x_BLD = layer(x_BLD, inputs)
            return x_BLD, x_BLD if every else None

        if slots_BP is None:
            x_BLD, h_NBLD = scan_layers(step, x_BLD, stack, self.N, **execution)
            return self._norm(x_BLD), h_NBLD
        # The last layer has other shapes than those below, so it stands outside of the scan.
        below, top = layer_stack.split_layers(stack, (self.N - 1, 1))
        x_BLD, _ = scan_layers(step, x_BLD, below, self.N - 1, **execution)
        top = jax.tree.map(lambda x: x[0], top)
        # Without remat: its backward pass comes first, before anything is computed again.
        layer = self._layer(view(slots_BP=slots_BP), train, slots_BP)
        return self._norm(layer(x_BLD, top)), None

    def extend(self, x_BLD, positions_BL, mask: Mask, cache: KVCache, *, train: bool):
        """Applies all layers to tokens behind those of the cache.

        Args:
            positions_BL: of the tokens.
            mask: causal, with the number of each row's new tokens; None: all are.

        Returns:
            (states, the cache with the tokens' keys and values).
        """
        if set(mask.fields()) - {"is_causal", "lengths_B"} or not mask.is_causal:
            raise ValueError("a model reads on token by token under a causal mask of lengths alone")
        L, J = positions_BL.shape[1], cache.k_NBJHK.shape[2]
        # By position: what is not written yet stands behind every query.
        view = make_view(Mask(is_causal=True), J, slots_BP=positions_BL, window=self.window)

        def step(x_BLD, inputs):
            layer_inputs, k_BJHK, v_BJHK = inputs
            past = KVCache(k_BJHK, v_BJHK, cache.length_B)
            x_BLD, past = self._layer(view, train, cache=past)(x_BLD, layer_inputs)
            return x_BLD, (past.k_NBJHK, past.v_NBJHK)

        inputs = (self._stack_inputs(train), cache.k_NBJHK, cache.v_NBJHK)
        x_BLD, (k_NBJHK, v_NBJHK) = jax.lax.scan(step, x_BLD, inputs)
        # Padding behind a row's own tokens is written, too, and overwritten by the next call.
        length_B = cache.length_B + (L if mask.lengths_B is None else mask.lengths_B)
        return self._norm(x_BLD), KVCache(k_NBJHK, v_NBJHK, length_B)

    def flops(self, B: int, L: int, P: int) -> float:
        D, A, N = self.D, self.H * self.K, self.N
        J = L / 2 if self.attention == "causal" else L  # keys that a query sees on average
        band = min(self.window, L)
        # The first positions of a row see fewer than the band has.
        near = band * (1 - band / (2 * L)) if band else J
        # Layers 1, 3, 5 ... are banded: N // 2 of them.
        scores = 4 * A * (J * (N - N // 2) + near * (N // 2)) / N  # per query
        queries = ((N - 1) * L + P) * (4 * D * A + 4 * D * self.F + scores)
        # In the last layer, too, all positions are keys and values.
        keys = N * L * 4 * D * A
        return 3 * B * (queries + keys)

    def _norm(self, x_BLD):
        return gather_positions(self.final_norm(x_BLD) if self.norm == "pre" else x_BLD)

    def _stack_inputs(self, train: bool):
        """Returns what each layer has for itself, [N, ...]: weights, if it is banded, and keys."""
        # A key for each: layers of a scan share their program, and would share their draws.
        rngs = jax.random.split(self.make_rng("dropout"), self.N) if train else None
        # GPT-3's layers are dense and banded by turns, the lowest dense.
        return self.layers, jnp.arange(self.N) % 2 == 1, rngs

    def _layer(self, view: AttentionView, train: bool, slots_BP=None, cache=None):
        """Returns a function of states and of a layer's `_stack_inputs`; see `Block`."""
        block = self._block()

        def apply(x_BLD, inputs):
            weights, is_banded, rng = inputs
            x_BLD, new = block.apply(
                {"params": weights},
                x_BLD,
                view.restrict_to_band(is_banded),
                slots_BP,
                cache,
                train=train,
                rngs={"dropout": rng} if train else {},
            )
            return x_BLD if cache is None else (x_BLD, new)

        return apply

    def _block(self) -> Block:
        # 2 N terms are added to the residual stream; so scaled, their sum varies as one (GPT-2).
        shrink = (2 * self.N) ** -0.5 if self.residual_scale else 1.0
        return Block(
            self.H,
            self.K,
            self.F,
            pre_norm=self.norm == "pre",
            activation=self.activation,
            dropout=self.dropout,
            attention_dropout=self.attention_dropout,
            epsilon=self.epsilon,
            kernel_init=initializer(self.initializer, self.init_scale),
            output_init=initializer(self.initializer, self.init_scale * shrink),
            dtype=self.dtype,
            attention_form=self.attention_form,
            parent=None,
        )
