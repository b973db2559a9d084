"""The backbone of BERT and GPT: absolute positions.

Devlin et al. 2019 (arXiv 1810.04805), Radford et al. 2018 and 2019 (GPT, GPT-2) and Brown et al.
2020 (arXiv 2005.14165), equal to the released codes in arithmetic.  Where only some positions are
read, the last layer computes those alone.
"""

from typing import ClassVar

import jax.numpy as jnp
from flax import linen as nn

from modules.backbones import Edit, Output, refuse_arguments
from modules.layers import layer_stack
from modules.layers.attention import KVCache
from modules.layers.embedding import Embedding
from modules.layers.params import check_choices, initializer, param, zeros
from modules.layers.transformer_stack import TransformerStack
from modules.masks import Mask, at
from modules.plugins import shared_fields


class Backbone(nn.Module):
    """Maps tokens to states.

    Attributes:
        V, D, H, K, N, F: vocabulary, width, heads, width of a head, layers, feed-forward.
        L: positions there are: the longest row.
        attention: "bi" or "causal": how texts are read where no objective says so.
        norm: "post", after each sum (BERT, GPT-1), or "pre", before each layer (GPT-2 and 3).
        window: of layers 1, 3, 5 ... each position sees the last so many alone (GPT-3); 0: all.
        S: kinds of segments that have an embedding (BERT: 2); 0: none.
        embedding_size: width of the embeddings, projected to D (ELECTRA); 0: they are D wide.
        normed_embedding: the sum of the embeddings is normed (BERT).
        pooler: `pool` exists (BERT).
        epsilon: of the norms.
        activation: of the feed-forward layers: "gelu" (its tanh form), "gelu_erf" or "relu".
        dropout, attention_dropout: dropout of the layers' outputs, of the attention's weights.
        dtype: of products; parameters, norms and the softmax are float32.
        initializer, init_scale: "normal" or "truncated" and its deviation.
        position_scale: deviation of the positions' embedding; 0: `init_scale`.
        residual_scale: what is added to the residual begins smaller by sqrt(2 N) (GPT-2).
        remat: what the backward pass computes again: "none", "dots" (all but products of
            weights) or "full".
        unroll: layers per step of the scan over layers; 0: what suits the platform.
        attention_form: "auto", a kernel where one can be used; "plain" products; or "kernel".
    """

    FREE_FIELDS: ClassVar[frozenset[str]] = layer_stack.FREE_FIELDS
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
    embedding_size: int = 0
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
    unroll: int = 0
    attention_form: str = "auto"

    def __post_init__(self):
        super().__post_init__()
        check_choices(self, attention=("bi", "causal"), norm=("post", "pre"), **layer_stack.CHOICES)
        if self.window and not self.is_causal:
            raise ValueError(f"window={self.window} is of a model with attention='causal'")

    def setup(self):
        D, init = self.D, initializer(self.initializer, self.init_scale)
        # Parts share the backbone's scope: their parameters stand among its own.
        self.embedding = Embedding(**shared_fields(self, Embedding))
        nn.share_scope(self, self.embedding)
        self.token_VE = self.embedding.token_VE  # read here, so that it is drawn first
        if self.pooler:
            self.pool_DD = param(self, "pool_DD", init, (D, D), decay=True, dtype=self.dtype)
            self.pool_bias_D = param(
                self, "pool_bias_D", zeros, (D,), decay=False, dtype=self.dtype
            )
        self.stack = TransformerStack(**shared_fields(self, TransformerStack))
        nn.share_scope(self, self.stack)

    @property
    def is_causal(self) -> bool:
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
        edit: Edit | None = None,
        train: bool,
    ) -> Output:
        """Computes states, see `modules.backbones.Backbone`; tokens stand behind the memory's."""
        if reason := self.refusal(mask):
            raise ValueError(reason)
        if memory is None:
            x_BLD = self.embedding(tokens_BL, segments_BL, positions_BL, edit=edit, train=train)
            return Output(self.stack(x_BLD, mask, slots_BP, train=train)[0])
        refuse_arguments("a reader that goes on", positions_BL=positions_BL)
        # Rows may have read unequally many tokens: each goes on from its own length, and reads as
        # many as `mask.lengths_B` says; the next call goes on behind them.
        positions_BL = memory.length_B[:, None] + jnp.arange(tokens_BL.shape[1])
        x_BLD = self.embedding(tokens_BL, segments_BL, positions_BL, edit=edit, train=train)
        h_BLD, memory = self.stack.extend(x_BLD, positions_BL, mask, memory, train=train)
        return Output(at(h_BLD, slots_BP), memory)

    def refusal(self, mask: Mask) -> str:
        if mask.hides_slots or mask.rank_BL is not None:
            return (
                "a transformer of one stream knows the token at every place, so it cannot predict "
                "in a permuted order: set model.name='two_stream'"
            )
        if mask.memory_BM is not None or mask.sees_memory_BL is not None:
            return "a transformer's memory is all seen: its mask says nothing of it"
        return ""

    def layer_states(self, tokens_BL, *, mask: Mask, segments_BL=None, memory=None) -> Output:
        """Computes what every layer makes of the rows, without dropout: [N + 1, B, L, D]."""
        refuse_arguments("a reader of whole rows", memory=memory)
        x_BLD = self.embedding(tokens_BL, segments_BL, None, train=False)
        h_BLD, h_NBLD = self.stack(x_BLD, mask, None, train=False, every=True)
        # The first is what the first layer reads, the others are as they run from layer to layer;
        # but the last is after the norm at the end, if there is one, as a call gives it.
        return Output(jnp.concatenate([x_BLD[None], h_NBLD[:-1], h_BLD[None]]))

    def initial_memory(self, B: int, J: int = 0) -> KVCache:
        """Makes room for J positions of B rows, of which nothing is read; 0: for all there are.

        Raises:
            ValueError: the model has fewer positions, or is not causal.
        """
        J = J or self.L
        if J > self.L:
            raise ValueError(f"{J} positions are more than the model's L={self.L}")
        if not self.is_causal:
            raise ValueError("only a model with attention='causal' can read on token by token")
        room = jnp.zeros((self.N, B, J, self.H, self.K), self.dtype)
        return KVCache(room, room, jnp.zeros(B, jnp.int32))

    def example(self):
        return jnp.zeros((1, 1), jnp.int32)

    def flops(self, B: int, L: int, P: int) -> float:
        stack = TransformerStack(**shared_fields(self, TransformerStack), parent=None)
        return stack.flops(B, L, P) + 6.0 * B * L * self.embedding_size * self.D

    def table(self):
        return self.token_VE

    def pool(self, h_BD):
        """Takes the state of a row's first position through a layer of its own: [B, D]."""
        return jnp.tanh(h_BD @ self.pool_DD + self.pool_bias_D)
