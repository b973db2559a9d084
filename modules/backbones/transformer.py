"""The backbone of BERT and GPT: absolute positions, seen from both sides or from the left.

Devlin et al. 2019 (arXiv 1810.04805), Radford et al. 2018 and 2019 (GPT, GPT-2) and Brown et al.
2020 (arXiv 2005.14165), equal to the released codes in arithmetic.  Where only some positions are
read, the last layer computes those alone.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn

from modules.activation_sharding import constrain_sharding
from modules.kernels.dense import dense
from modules.layers import dropout, layer_stack
from modules.layers.attention import Attention, Past, Sight, at, sight
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
    set_depths,
    zeros,
)
from modules.losses import cross_entropy


class Cache(NamedTuple):
    """What a causal backbone has read of each row: so many positions, their keys and values."""

    k_NBJHK: jax.Array
    v_NBJHK: jax.Array
    length_B: jax.Array


class Block(nn.Module):
    """Attention, then feed-forward; each normed before it begins (`pre`) or after it is added."""

    H: int
    K: int
    F: int
    pre: bool
    activation: str
    dropout: float
    attention_dropout: float
    epsilon: float
    inwards: nn.initializers.Initializer
    outwards: nn.initializers.Initializer
    dtype: str

    def setup(self):
        kind = (self.inwards, self.outwards, self.dtype)
        self.attention = Attention(self.H, self.K, self.attention_dropout, *kind)
        self.attention_norm = Norm(self.epsilon)
        self.ffn = FeedForward(self.F, self.activation, self.dropout, 0.0, *kind)
        self.ffn_norm = Norm(self.epsilon)
        self.drop = Dropout(self.dropout)

    def __call__(
        self, x_BLD, sight: Sight, slots_BP=None, past: Past | None = None, *, train: bool
    ):
        """States after this layer, those in the slots alone if there are some; keys and values."""
        y_BJD = self.attention_norm(x_BLD) if self.pre else x_BLD
        y_BLD = y_BJD
        if slots_BP is not None:
            x_BLD, y_BLD = at(x_BLD, slots_BP), at(y_BJD, slots_BP)
        a_BLD, keys = self.attention(y_BLD, y_BJD, sight, past, train=train)
        x_BLD = x_BLD + self.drop(a_BLD, train=train)
        if self.pre:
            x_BLD = x_BLD + self.ffn(self.ffn_norm(x_BLD), train=train)
        else:
            x_BLD = self.attention_norm(x_BLD)
            x_BLD = self.ffn_norm(x_BLD + self.ffn(x_BLD, train=train))
        return constrain_sharding(x_BLD, "BLD"), keys


class Backbone(nn.Module):
    """Tokens to states.

    Attributes:
        V, D, H, K, N, F: vocabulary, width, heads, width of a head, layers, feed-forward.
        L: positions there are: the longest row.
        attention: "bi", every position sees all (BERT), or "causal": what came before (GPT).
        norm: "post", after each sum (BERT, GPT-1), or "pre", before each layer, with one at the
            end (GPT-2 and 3).
        window: of layers 1, 3, 5 ... each position sees the last so many alone (GPT-3); 0: all.
        S: kinds of segments that have an embedding (BERT: 2); 0: none.
        normed_embedding: the sum of the embeddings is normed (BERT).
        head: how states become logits, always with the embedding's own weights: "tied", or
            "transform", after another layer and with a bias per token (BERT).
        pooler: `pool` exists (BERT).
        table_dropout: dropout takes entries out of the whole embedding, for all tokens alike and
            for the logits too, which then include the positions': as the released code of GPT-1.
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
    head: str = "tied"
    pooler: bool = False
    table_dropout: bool = False
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
        check_choice(self, "head", ("tied", "transform"))
        if self.window and self.attention == "bi":
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
        if self.head == "transform":
            self.head_DD = param(self, "head_DD", init, (D, D), decay=True, dtype=self.dtype)
            self.head_bias_D = param(
                self, "head_bias_D", zeros, (D,), decay=False, dtype=self.dtype
            )
            self.head_norm = Norm(self.epsilon)
            self.bias_V = param(self, "bias_V", zeros, (V,), decay=False)
        if self.pooler:
            self.pool_DD = param(self, "pool_DD", init, (D, D), decay=True, dtype=self.dtype)
            self.pool_bias_D = param(
                self, "pool_bias_D", zeros, (D,), decay=False, dtype=self.dtype
            )
        self.drop = Dropout(self.dropout)
        if self.table_dropout and self.has_rng("dropout"):  # one mask, wherever the table is used
            self.table_words = jax.random.bits(self.make_rng("dropout"), (2,), jnp.uint32)
        self.layers = layer_stack.init_layer_stack(
            self, "layers", self._block(), self.N, *self._example(), train=False
        )

    def encode(self, tokens_BL, valid_BL, *, train: bool, segments_BL=None):
        """States of all positions, [B, L, D]; rows are padded on the right."""
        return self(tokens_BL, segments_BL, valid_BL=valid_BL, train=train)

    def states(self, tokens_BL, valid_BL, *, segments_BL=None):
        """What every layer makes of the rows, [N + 1, B, L, D], without dropout.

        The first is what the first layer reads; the last is what `encode` gives, with norm="pre"
        after the norm at the end.  Those in between are as they run from layer to layer.
        """
        x_BLD, look = self._begin(tokens_BL, segments_BL, valid_BL, None, train=False)
        h_BLD, h_NBLD = self._through(x_BLD, look, None, train=False, every=True)
        return jnp.concatenate([x_BLD[None], h_NBLD[:-1], self._normed(h_BLD)[None]])

    def example(self):
        """The smallest tokens, to make the parameters with."""
        return jnp.zeros((1, 1), jnp.int32)

    def __call__(
        self,
        tokens_BL,
        segments_BL=None,
        *,
        valid_BL=None,
        groups_BL=None,
        slots_BP=None,
        train: bool,
    ):
        """States [B, L, D], or of the slots alone [B, P, D].

        Args:
            tokens_BL, segments_BL: ids; without segments all are segment 0.
            valid_BL: False for padding, which stands at a row's end and which nobody sees.
            groups_BL: ints; a position sees those of its own group only.
            slots_BP: positions to compute.
        """
        x_BLD, look = self._begin(tokens_BL, segments_BL, valid_BL, groups_BL, train)
        h_BLD = self._normed(self._through(x_BLD, look, slots_BP, train)[0])
        if self.is_initializing():
            self._transformed(h_BLD)  # the head has its parameters, whether or not it is used
        return h_BLD

    def pool(self, h_BD):
        """The state of a row's first position through a layer of its own: [B, D]."""
        return jnp.tanh(h_BD @ self.pool_DD + self.pool_bias_D)

    def logits(self, h_BLD):
        """Scores of the vocabulary, tied to the embedding: [B, L, V] float32."""
        h_BLD = self._transformed(h_BLD)
        w_VD = self.token_VD.astype(h_BLD.dtype)
        logits = jnp.einsum("BLD,VD->BLV", h_BLD, w_VD, preferred_element_type=jnp.float32)
        return logits + self.bias_V if self.head == "transform" else logits

    def cross_entropy(self, h_BPD, targets_BP, weights_BP, *, chunks: int, train: bool = False):
        """`cross_entropy.softmax_cross_entropy` of the tied softmax: the same without the
        logits."""
        h_BPD = self._transformed(h_BPD)
        bias_V = self.bias_V if self.head == "transform" else None
        w_VD = self._table(train) if self.table_dropout else self.token_VD
        return cross_entropy.softmax_cross_entropy(
            h_BPD, w_VD, bias_V, targets_BP, weights_BP, chunks=chunks
        )

    def flops(self, B: int, L: int, P: int) -> float:
        """Floating-point operations of a training step on [B, L] with P positions predicted.

        Products only, a multiply-add as two, backward as twice forward; what a step executes
        beyond that - recomputation, scores of what is not seen - is not counted.
        """
        D, A, N = self.D, self.H * self.K, self.N
        J = L / 2 if self.attention == "causal" else L
        band = min(self.window, L)
        near = band * (1 - band / (2 * L)) if band else J
        scores = 4 * A * (J * (N - N // 2) + near * (N // 2)) / N  # per query
        queries = ((N - 1) * L + P) * (4 * D * A + 4 * D * self.F + scores)
        keys = N * L * 4 * D * A
        rows = self.V + (self.L if self.table_dropout else 0)
        head = 2 * P * D * rows + (2 * P * D * D if self.head == "transform" else 0)
        return 3 * B * (queries + keys + head)

    # --- reading on, token by token ----------------------------------------------------------

    def cache(self, B: int, J: int) -> Cache:
        """Room for J positions of B rows, of which nothing is read.

        Raises:
            ValueError: the model has fewer positions, or looks at what is yet to come.
        """
        if J > self.L:
            raise ValueError(f"{J} positions are more than the model's L={self.L}")
        if self.attention != "causal":
            raise ValueError("only a model with attention='causal' can read on token by token")
        room = jnp.zeros((self.N, B, J, self.H, self.K), self.dtype)
        return Cache(room, room, jnp.zeros(B, jnp.int32))

    def extend(self, tokens_BL, cache: Cache, lengths_B=None):
        """States [B, L, D] of L more tokens of each row, and the cache with them read.

        Args:
            lengths_B: only the first so many of a row's tokens are real; the next call goes on
                behind those.  None: all L.
        """
        L = tokens_BL.shape[1]
        place_BL = cache.length_B[:, None] + jnp.arange(L)
        x_BLD = self._embed(tokens_BL, None, place_BL, train=False)
        seen, block = self._sight(cache.k_NBJHK.shape[2], slots_BP=place_BL), self._block()

        def step(x_BLD, own):
            params, banded, k_BJHK, v_BJHK = own
            past = Past(k_BJHK, v_BJHK, cache.length_B)
            narrowed = seen.narrowed(banded)
            return block.apply({"params": params}, x_BLD, narrowed, None, past, train=False)

        own = (self.layers, self._banded(), cache.k_NBJHK, cache.v_NBJHK)
        x_BLD, (k_NBJHK, v_NBJHK) = jax.lax.scan(step, x_BLD, own)
        read_B = cache.length_B + (L if lengths_B is None else lengths_B)
        return self._normed(x_BLD), Cache(k_NBJHK, v_NBJHK, read_B)

    # --- parts -------------------------------------------------------------------------------

    def _begin(self, tokens_BL, segments_BL, valid_BL, groups_BL, train: bool):
        """What the first layer reads, and a function that tells who sees whom."""
        L = tokens_BL.shape[1]
        if L > self.L:
            raise ValueError(f"a row of {L} tokens is longer than the model's L={self.L} positions")
        x_BLD = self._embed(tokens_BL, segments_BL, jnp.arange(L)[None], train)
        lengths_B = None if valid_BL is None else valid_BL.sum(1, dtype=jnp.int32)
        return x_BLD, functools.partial(self._sight, L, lengths_B=lengths_B, groups_BL=groups_BL)

    def _table(self, train: bool):
        """Tokens' and positions' embeddings, [V + L, D], entries taken out of both."""
        table = jnp.concatenate([self.token_VD, self.position_LD])
        return dropout.apply_dropout(self.dropout, table, self.table_words) if train else table

    def _embed(self, tokens_BL, segments_BL, place_BL, train: bool):
        token_VD, position_LD = self.token_VD, self.position_LD
        if self.table_dropout:
            token_VD, position_LD = jnp.split(self._table(train), [self.V])
        x_BLD = token_VD[tokens_BL] + position_LD[place_BL]
        if self.S:
            kinds = 0 if segments_BL is None else segments_BL
            one_hot_BLS = jax.nn.one_hot(jnp.broadcast_to(kinds, tokens_BL.shape), self.S)
            x_BLD += jnp.einsum("BLS,SD->BLD", one_hot_BLS, self.segment_SD)
        x_BLD = reshard_embedding_rows(x_BLD.astype(self.dtype), self.V)
        if self.normed_embedding:
            x_BLD = self.embedding_norm(x_BLD)
        if not self.table_dropout:
            x_BLD = self.drop(x_BLD, train=train)
        return constrain_sharding(x_BLD, "BLD")

    def _transformed(self, h_BLD):
        if self.head == "tied":
            return h_BLD
        h_BLD = constrain_sharding(dense(h_BLD, self.head_DD) + self.head_bias_D, "BLD")
        return self.head_norm(ACTIVATIONS[self.activation](h_BLD))

    def _normed(self, h_BLD):
        return self.final_norm(h_BLD) if self.norm == "pre" else h_BLD

    def _sight(self, L: int, **what) -> Sight:
        return sight(L, causal=self.attention == "causal", window=self.window, **what)

    def _banded(self):
        """[N]: the layers whose sight is narrowed to the window."""
        return jnp.arange(self.N) % 2 == 1

    def _through(self, x_BLD, look, slots_BP, train: bool, every: bool = False):
        """All layers, of which the last computes the slots alone; and `every` layer's states."""
        rngs = jax.random.split(self.make_rng("dropout"), self.N) if train else None
        block, own = self._block(), (self.layers, self._banded(), rngs)

        def layer(x_BLD, own, seen, slots_BP=None):
            params, banded, rng = own
            x_BLD, _ = block.apply(
                {"params": params},
                x_BLD,
                seen.narrowed(banded),
                slots_BP,
                train=train,
                rngs={"dropout": rng} if train else {},
            )
            return x_BLD

        through = layer_stack.REMAT[self.remat](functools.partial(layer, seen=look()))

        def step(x_BLD, own):
            x_BLD = through(x_BLD, own)
            return x_BLD, x_BLD if every else None

        if slots_BP is None:
            return jax.lax.scan(step, x_BLD, own, unroll=self.unroll)
        below, top = layer_stack.split_layers(own, (self.N - 1, 1))
        x_BLD, _ = jax.lax.scan(step, x_BLD, below, self.N - 1, unroll=self.unroll)
        top = jax.tree.map(lambda x: x[0], top)
        return layer(x_BLD, top, look(slots_BP=slots_BP), slots_BP), None

    def _block(self) -> Block:
        shrink = (2 * self.N) ** -0.5 if self.residual_scale else 1.0
        inwards, outwards = (
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
            inwards,
            outwards,
            self.dtype,
            parent=None,
        )

    def _example(self):
        """The smallest arguments of a block, to make its parameters with."""
        return jnp.zeros((1, 1, self.D), self.dtype), sight(1, causal=False)
