"""Attention as in BERT and GPT, and one layer of it (Vaswani et al. 2017)."""

import flax.struct
import jax
import jax.numpy as jnp
from flax import linen as nn

from modules.activation_sharding import (
    constrain_sharding,
    gather_positions,
    scatter_positions,
)
from modules.kernels.attention import attend
from modules.kernels.dense import dense
from modules.layers import params
from modules.layers.dropout import Dropout
from modules.layers.feed_forward import FeedForward
from modules.layers.norm import Norm
from modules.masks import AttentionView, at


@flax.struct.dataclass
class KVCache:
    """Keys and values of the positions that have been read.

    Attributes:
        k_NBJHK, v_NBJHK: room for J positions of each row; without N those of one layer.
        length_B: positions of each row that are filled.
    """

    k_NBJHK: jax.Array
    v_NBJHK: jax.Array
    length_B: jax.Array

    def append(self, k_BLHK, v_BLHK) -> "KVCache":
        """Writes new keys and values of one layer behind those of each row, if there is room."""
        row_B1 = jnp.arange(len(self.length_B))[:, None]
        place_BL = self.length_B[:, None] + jnp.arange(k_BLHK.shape[1])

        def write(old, new):
            # Rows differ in length, so this is a scatter and no slice.
            return old.at[row_B1, place_BL].set(new.astype(old.dtype), mode="drop")

        # The lengths stay: all layers share them, and their caller counts them once.
        return KVCache(write(self.k_NBJHK, k_BLHK), write(self.v_NBJHK, v_BLHK), self.length_B)


class Attention(nn.Module):
    """Multi-head attention with biases (Vaswani et al. 2017, section 3.2).

    Attributes:
        form: see `modules.kernels.attention.attend`.
    """

    H: int
    K: int
    dropout: float
    kernel_init: nn.initializers.Initializer
    output_init: nn.initializers.Initializer
    dtype: str
    form: str = "auto"

    @nn.compact
    def __call__(
        self, x_BLD, y_BJD, view: AttentionView, cache: KVCache | None = None, *, train: bool
    ):
        """Attends from x to y.

        Args:
            x_BLD: queries; y_BJD: keys and values.
            view: which keys a query sees.
            cache: of this layer; y's keys and values stand behind its own.

        Returns:
            ([B, L, D], the cache with y's keys and values; None without a cache).
        """
        H, K, D = self.H, self.K, x_BLD.shape[-1]

        def project(x_BLD, letter: str):
            w_DHK = params.param(
                self, f"w{letter}_DHK", self.kernel_init, (D, H, K), decay=True, dtype=self.dtype
            )
            b_HK = params.param(
                self, f"b{letter}_HK", params.zeros, (H, K), decay=False, dtype=self.dtype
            )
            # As two dimensions: `dense` computes the weight's gradient by one large product.
            out_BLF = dense(x_BLD, w_DHK.reshape(D, H * K))
            return constrain_sharding(out_BLF.reshape(*x_BLD.shape[:2], H, K) + b_HK, "BLHK")

        q_BLHK, k_BJHK, v_BJHK = project(x_BLD, "q"), project(y_BJD, "k"), project(y_BJD, "v")
        if cache is not None:
            cache = cache.append(k_BJHK, v_BJHK)
            k_BJHK, v_BJHK = cache.k_NBJHK, cache.v_NBJHK
        dropout = Dropout(self.dropout).make_key(train=train)
        o_BLHK = attend(q_BLHK, k_BJHK, v_BJHK, view, dropout=dropout, form=self.form)
        o_BLHK = constrain_sharding(o_BLHK, "BLHK")
        wo_HKD = params.param(
            self, "wo_HKD", self.output_init, (H, K, D), decay=True, dtype=self.dtype
        )
        bo_D = params.param(self, "bo_D", params.zeros, (D,), decay=False, dtype=self.dtype)
        # As above: heads and their width are one dimension of the product.
        o_BLF = o_BLHK.reshape(*x_BLD.shape[:2], H * K)
        return dense(o_BLF, wo_HKD.reshape(H * K, D)) + bo_D, cache


class Block(nn.Module):
    """A layer: attention, then feed-forward, each with a residual.

    Attributes:
        pre_norm: a norm before each of the two (GPT-2); False: after each sum (BERT, GPT).
        kernel_init, output_init: initializers of what reads the residual stream, and of what is
            added to it.
        attention_form: see `modules.kernels.attention.attend`.
    """

    H: int
    K: int
    F: int
    pre_norm: bool
    activation: str
    dropout: float
    attention_dropout: float
    epsilon: float
    kernel_init: nn.initializers.Initializer
    output_init: nn.initializers.Initializer
    dtype: str
    attention_form: str = "auto"

    def setup(self):
        kind = (self.kernel_init, self.output_init, self.dtype)
        rate, form = self.attention_dropout, self.attention_form
        self.attention = Attention(self.H, self.K, rate, *kind, form)
        self.attention_norm = Norm(self.epsilon)
        self.ffn = FeedForward(self.F, self.activation, self.dropout, 0.0, *kind)
        self.ffn_norm = Norm(self.epsilon)
        self.drop = Dropout(self.dropout)

    def __call__(
        self,
        x_BLD,
        view: AttentionView,
        slots_BP=None,
        cache: KVCache | None = None,
        *,
        train: bool,
    ):
        """Computes the states after this layer.

        Args:
            slots_BP: positions whose states are wanted; None: all.
            cache: of this layer, when tokens are read one by one.

        Returns:
            (states [B, L, D], or [B, P, D] of the slots; the cache of this layer).
        """
        x_BLD = scatter_positions(x_BLD)
        y_BJD = gather_positions(self.attention_norm(x_BLD) if self.pre_norm else x_BLD)
        # All positions are keys; only the slots are queries, and go on to the feed-forward.
        y_BLD = at(y_BJD, slots_BP)
        if slots_BP is not None:
            x_BLD = scatter_positions(at(gather_positions(x_BLD), slots_BP))
        a_BLD, cache = self.attention(y_BLD, y_BJD, view, cache, train=train)
        x_BLD = x_BLD + self.drop(scatter_positions(a_BLD), train=train)
        if self.pre_norm:
            x_BLD = x_BLD + self._feed_forward(self.ffn_norm(x_BLD), train)
        else:
            x_BLD = self.attention_norm(x_BLD)
            x_BLD = self.ffn_norm(x_BLD + self._feed_forward(x_BLD, train))
        return scatter_positions(x_BLD), cache

    def _feed_forward(self, x_BLD, train: bool):
        return scatter_positions(self.ffn(gather_positions(x_BLD), train=train))
