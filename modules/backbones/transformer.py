"""The backbone of BERT and GPT: absolute positions.

Devlin et al. 2019 (arXiv 1810.04805), Radford et al. 2018 and 2019 (GPT, GPT-2) and Brown et al.
2020 (arXiv 2005.14165), equal to the released codes in arithmetic.  Where only some positions are
read, the last layer computes those alone.
"""

import functools

import jax
import jax.numpy as jnp
from flax import linen as nn

from modules.activation_sharding import constrain_sharding
from modules.backbones import Output
from modules.kernels.attention import AttentionMask, make_attention_mask
from modules.layers import layer_stack
from modules.layers.attention import Block, KVCache
from modules.layers.dropout import Dropout
from modules.layers.norm import Norm
from modules.layers.params import (
    ACTIVATIONS,
    DTYPES,
    INITIALIZERS,
    check_choice,
    initializer,
    param,
    reshard_embedding_rows,
    set_depths,
    zeros,
)
from modules.masks import Mask, at


class Backbone(nn.Module):
    """Maps tokens to states.

    Attributes:
        V, D, H, K, N, F: vocabulary, width, heads, width of a head, layers, feed-forward.
        L: positions there are: the longest row.
        attention: "bi" or "causal": how texts are read where no objective says so.
        norm: "post", after each sum (BERT, GPT-1), or "pre", before each layer, with one at the
            end (GPT-2 and 3).
        window: of layers 1, 3, 5 ... each position sees the last so many alone (GPT-3); 0: all.
        S: kinds of segments that have an embedding (BERT: 2); 0: none.
        normed_embedding: the sum of the embeddings is normed (BERT).
        pooler: `pool` exists (BERT).
        epsilon: of the norms.
        initializer, init_scale: "normal" or "truncated" and its deviation.
        position_scale: deviation of the positions' embedding; 0: as all.
        residual_scale: what returns to the sum begins smaller by sqrt(2 N) (GPT-2).
        remat: what the backward pass computes again: "none", "dots" (all but products of
            weights) or "full".
        unroll: steps taken together of the scan over layers.
    """

    V: int
    D: int = 768
    H: int = 12
    K: int = 64
    N: int = 12
    F: int = 3072
    L: int = 512
    attention: str = "bi"
    norm: str = "post"
    window: int = 0
    S: int = 0
    normed_embedding: bool = False
    pooler: bool = False
    activation: str = "gelu"
    epsilon: float = 1e-5
    dropout: float = 0.1
    attention_dropout: float = 0.1
    initializer: str = "normal"
    init_scale: float = 0.02
    position_scale: float = 0.0
    residual_scale: bool = False
    dtype: str = "float32"
    remat: str = "none"
    unroll: int = 1

    def __post_init__(self):
        super().__post_init__()
        check_choice(self, "activation", ACTIVATIONS)
        check_choice(self, "remat", layer_stack.REMAT)
        check_choice(self, "dtype", DTYPES)
        check_choice(self, "initializer", INITIALIZERS)
        check_choice(self, "attention", ("bi", "causal"))
        check_choice(self, "norm", ("post", "pre"))
        if self.window and not self.is_causal:
            raise ValueError(f"window={self.window} is of a model with attention='causal'")

    def setup(self):
        V, D = self.V, self.D
        init = initializer(self.initializer, self.init_scale)
        place = initializer(self.initializer, self.position_scale or self.init_scale)
        self.token_VD = param(self, "token_VD", init, (V, D), decay=True, depth=0)
        self.position_LD = param(self, "position_LD", place, (self.L, D), decay=True, depth=0)
        if self.S:
            self.segment_SD = param(self, "segment_SD", init, (self.S, D), decay=True, depth=0)
        if self.normed_embedding:
            self.embedding_norm = Norm(self.epsilon)
            set_depths(self, embedding_norm=0)
        if self.norm == "pre":
            self.final_norm = Norm(self.epsilon)
        if self.pooler:
            self.pool_DD = param(self, "pool_DD", init, (D, D), decay=True, dtype=self.dtype)
            self.pool_bias_D = param(
                self, "pool_bias_D", zeros, (D,), decay=False, dtype=self.dtype
            )
        self.drop = Dropout(self.dropout)
        example = jnp.zeros((1, 1, D), self.dtype), make_attention_mask(Mask(), 1)
        self.layers = layer_stack.init_layer_stack(
            self, "layers", self._block(), self.N, *example, train=False
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
        memory: KVCache | None = None,
        train: bool,
    ) -> Output:
        """Computes states, see `modules.backbones.Backbone`.

        With a memory (`initial_memory`) the tokens stand behind those that it has read, of each
        row as many as `mask.lengths_B` says; the next call goes on behind them.
        """
        if reason := self.refusal(mask):
            raise ValueError(reason)
        if memory is None:
            x_BLD, masks = self._begin(tokens_BL, mask, segments_BL, positions_BL, train)
            h_BLD, _ = self._apply_layers(x_BLD, masks, slots_BP, train)
        else:
            h_BLD, memory = self._read_on(tokens_BL, mask, segments_BL, memory, train)
            h_BLD = at(h_BLD, slots_BP)
        return Output(self._norm_top(h_BLD), memory)

    def refusal(self, mask: Mask) -> str:
        """Says why a mask cannot be honoured; "" if it can."""
        if mask.hides_slots or mask.rank_BL is not None:
            return (
                "a transformer of one stream knows the token at every place, so it cannot predict "
                "in a permuted order: set model.name='two_stream'"
            )
        if mask.memory_BM is not None or mask.sees_memory_BL is not None:
            return "a transformer's memory is all seen: its mask says nothing of it"
        return ""

    def layer_states(self, tokens_BL, *, mask: Mask, segments_BL=None, memory=None) -> Output:
        """Computes what every layer makes of the rows, without dropout: [N + 1, B, L, D].

        The first is what the first layer reads; the last is after the norm at the end, if there
        is one, and those in between are as they run from layer to layer.
        """
        if memory is not None:
            raise ValueError("layer_states reads whole rows, without a memory")
        x_BLD, masks = self._begin(tokens_BL, mask, segments_BL, None, train=False)
        h_BLD, h_NBLD = self._apply_layers(x_BLD, masks, None, train=False, every=True)
        return Output(jnp.concatenate([x_BLD[None], h_NBLD[:-1], self._norm_top(h_BLD)[None]]))

    def initial_memory(self, B: int, J: int = 0) -> KVCache:
        """Makes room for J positions of B rows, of which nothing is read; 0: for all there are.

        Raises:
            ValueError: the model has fewer positions, or looks at what is yet to come.
        """
        J = J or self.L
        if J > self.L:
            raise ValueError(f"{J} positions are more than the model's L={self.L}")
        if not self.is_causal:
            raise ValueError("only a model with attention='causal' can read on token by token")
        room = jnp.zeros((self.N, B, J, self.H, self.K), self.dtype)
        return KVCache(room, room, jnp.zeros(B, jnp.int32))

    def example(self):
        """Returns the smallest tokens, to make the parameters with."""
        return jnp.zeros((1, 1), jnp.int32)

    def flops(self, B: int, L: int, P: int) -> float:
        """Counts the operations of a training step, see `modules.backbones.Backbone`."""
        D, A, N = self.D, self.H * self.K, self.N
        J = L / 2 if self.is_causal else L
        band = min(self.window, L)
        near = band * (1 - band / (2 * L)) if band else J
        scores = 4 * A * (J * (N - N // 2) + near * (N // 2)) / N  # per query
        queries = ((N - 1) * L + P) * (4 * D * A + 4 * D * self.F + scores)
        keys = N * L * 4 * D * A
        return 3 * B * (queries + keys)

    def table(self):
        """Returns the tokens' embedding, [V, D]."""
        return self.token_VD

    def pool(self, h_BD):
        """Takes the state of a row's first position through a layer of its own: [B, D]."""
        return jnp.tanh(h_BD @ self.pool_DD + self.pool_bias_D)

    # --- parts -------------------------------------------------------------------------------

    def _begin(self, tokens_BL, mask: Mask, segments_BL, positions_BL, train: bool):
        """Embeds whole rows; returns a function from slots to the layers' mask besides."""
        L = tokens_BL.shape[1]
        if L > self.L:
            raise ValueError(f"a row of {L} tokens is longer than the model's L={self.L} positions")
        positions_BL = jnp.arange(L)[None] if positions_BL is None else positions_BL
        x_BLD = self._embed(tokens_BL, segments_BL, positions_BL, train)
        return x_BLD, functools.partial(make_attention_mask, mask, L, window=self.window)

    def _embed(self, tokens_BL, segments_BL, positions_BL, train: bool):
        x_BLD = self.token_VD[tokens_BL] + self.position_LD[positions_BL]
        if self.S:
            kinds = 0 if segments_BL is None else segments_BL
            one_hot_BLS = jax.nn.one_hot(jnp.broadcast_to(kinds, tokens_BL.shape), self.S)
            x_BLD += jnp.einsum("BLS,SD->BLD", one_hot_BLS, self.segment_SD)
        x_BLD = reshard_embedding_rows(x_BLD.astype(self.dtype), self.V)
        if self.normed_embedding:
            x_BLD = self.embedding_norm(x_BLD)
        return constrain_sharding(self.drop(x_BLD, train=train), "BLD")

    def _norm_top(self, h_BLD):
        return self.final_norm(h_BLD) if self.norm == "pre" else h_BLD

    def _apply_layers(self, x_BLD, masks, slots_BP, train: bool, every: bool = False):
        """Applies all layers, the last to the slots alone; returns every one's states besides."""
        layer, stack = self._layer(masks(), train), self._stack(train)
        layer = layer_stack.REMAT[self.remat](layer)

        def step(x_BLD, weights):
            x_BLD = layer(x_BLD, weights)
            return x_BLD, x_BLD if every else None

        if slots_BP is None:
            return jax.lax.scan(step, x_BLD, stack, unroll=self.unroll)
        below, top = layer_stack.split_layers(stack, (self.N - 1, 1))
        x_BLD, _ = jax.lax.scan(step, x_BLD, below, self.N - 1, unroll=self.unroll)
        top = jax.tree.map(lambda x: x[0], top)
        return self._layer(masks(slots_BP=slots_BP), train, slots_BP)(x_BLD, top), None

    def _read_on(self, tokens_BL, mask: Mask, segments_BL, cache: KVCache, train: bool):
        """Applies all layers to tokens behind those of the cache; and the cache with them."""
        if set(mask.fields()) - {"is_causal", "lengths_B"} or not mask.is_causal:
            raise ValueError("a model reads on token by token under a causal mask of lengths alone")
        L, J = tokens_BL.shape[1], cache.k_NBJHK.shape[2]
        places_BL = cache.length_B[:, None] + jnp.arange(L)
        x_BLD = self._embed(tokens_BL, segments_BL, places_BL, train)
        seen = make_attention_mask(Mask(is_causal=True), J, slots_BP=places_BL, window=self.window)

        def step(x_BLD, own):
            weights, k_BJHK, v_BJHK = own
            past = KVCache(k_BJHK, v_BJHK, cache.length_B)
            x_BLD, past = self._layer(seen, train, cache=past)(x_BLD, weights)
            return x_BLD, (past.k_NBJHK, past.v_NBJHK)

        own = (self._stack(train), cache.k_NBJHK, cache.v_NBJHK)
        x_BLD, (k_NBJHK, v_NBJHK) = jax.lax.scan(step, x_BLD, own)
        read_B = cache.length_B + (L if mask.lengths_B is None else mask.lengths_B)
        return x_BLD, KVCache(k_NBJHK, v_NBJHK, read_B)

    def _stack(self, train: bool):
        """What each layer has of its own, [N, ...]: weights, if it is banded, and keys."""
        rngs = jax.random.split(self.make_rng("dropout"), self.N) if train else None
        return self.layers, jnp.arange(self.N) % 2 == 1, rngs

    def _layer(self, mask: AttentionMask, train: bool, slots_BP=None, cache=None):
        """Returns a function of states and what a layer has of its own; see `Block`."""
        block = self._block()

        def apply(x_BLD, own):
            weights, is_banded, rng = own
            x_BLD, new = block.apply(
                {"params": weights},
                x_BLD,
                mask.restrict_to_band(is_banded),
                slots_BP,
                cache,
                train=train,
                rngs={"dropout": rng} if train else {},
            )
            return x_BLD if cache is None else (x_BLD, new)

        return apply

    def _block(self) -> Block:
        shrink = (2 * self.N) ** -0.5 if self.residual_scale else 1.0
        kernel_init, output_init = (
            initializer(self.initializer, self.init_scale * by) for by in (1.0, shrink)
        )
        return Block(
            self.H,
            self.K,
            self.F,
            self.norm == "pre",
            self.activation,
            self.dropout,
            self.attention_dropout,
            self.epsilon,
            kernel_init,
            output_init,
            self.dtype,
            parent=None,
        )
