"""XLNet's backbone: a content stream that sees itself, a query stream that does not.

Yang et al. 2019 (arXiv 1906.08237), equal to the released code in arithmetic but not in work:
the query stream exists only at the predicted positions, keys and values serve both streams,
and no layer computes a stream that nobody reads.  Without queries it is a Transformer-XL.
"""

from typing import ClassVar

import jax.numpy as jnp
from flax import linen as nn

from modules.activation_sharding import constrain_sharding
from modules.backbones import Edit, Output, refuse_arguments
from modules.layers import layer_stack
from modules.layers.dropout import Dropout
from modules.layers.params import check_choices, embed_tokens, initializer, param
from modules.layers.relative_attention import Distances, make_distances, make_views
from modules.layers.segment_memory import Memory
from modules.layers.two_stream_stack import TwoStreamStack
from modules.masks import Mask
from modules.plugins import shared_fields


class Backbone(nn.Module):
    """Maps tokens to content states, or predicted positions to query states.

    Attributes:
        V, D, H, K, N, F: vocabulary, width, heads, width of a head, layers, feed-forward.
        M: positions of memory carried from window to window (the paper's mem_len); 0: none.
        reuse_len: how much of a window the memory keeps; 0: all of it.
        untie_r: every layer has biases of its own, as in the released models.
        attention: "bi" or "causal": how texts are read where no objective says so.
        same_length: read so, all positions see equally many keys of memory and text.
        clamp_len: distances beyond this count as this; -1: off.
        activation: of the feed-forward layers: "gelu" (its tanh form), "gelu_erf" or "relu".
        dropout, attention_dropout: dropout of the layers' outputs, of the attention's weights.
        dtype: of products; parameters, norms and the softmax are float32.
        shared_distances: the distances of a batch have one dropout; False: each row its own.
        initializer, init_scale: "normal" and its deviation, or "uniform" and its range.
        block: query rows whose distances are scored together.
        remat: computed again backwards: "none", "dots" (all but weights' products), "full".
        unroll: layers per step of the scan over layers; 0: what suits the platform.
        attention_form: "auto", a kernel where one can be used; "plain" products; or "kernel".
    """

    FREE_FIELDS: ClassVar[frozenset[str]] = layer_stack.FREE_FIELDS | {"M", "reuse_len"}

    V: int
    D: int = 768
    H: int = 12
    K: int = 64
    N: int = 12
    F: int = 3072
    M: int = 0
    reuse_len: int = 0
    untie_r: bool = True
    attention: str = "bi"
    same_length: bool = False
    clamp_len: int = -1
    activation: str = "gelu"
    dropout: float = 0.1
    attention_dropout: float = 0.1
    shared_distances: bool = True
    initializer: str = "normal"
    init_scale: float = 0.02
    dtype: str = "float32"
    block: int = 128
    remat: str = "none"
    unroll: int = 0
    attention_form: str = "auto"

    def __post_init__(self):
        super().__post_init__()
        check_choices(self, attention=("bi", "causal"), **layer_stack.CHOICES)

    def setup(self):
        init = initializer(self.initializer, self.init_scale)
        self.token_VD = param(
            self, "token_VD", init, (self.V, self.D), decay=True, is_table=True, depth=0
        )
        # The released code leaves this one variable to TensorFlow's default initialiser.
        glorot = nn.initializers.glorot_uniform()
        self.query_1D = param(self, "query_1D", glorot, (1, self.D), decay=True, dtype=self.dtype)
        # One rate wherever the released code drops out, but for the attention's probabilities.
        self.drop = Dropout(self.dropout)
        self.stack = TwoStreamStack(**shared_fields(self, TwoStreamStack))
        nn.share_scope(self, self.stack)  # its parameters stand among the backbone's

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
        memory: Memory | None = None,
        blind_BP=None,
        backward_B=None,
        reuse_len: int | None = None,
        edit: Edit | None = None,
        train: bool,
    ) -> Output:
        """Computes states, see `modules.backbones.Backbone`; everything sees itself besides.

        Args:
            segments_BL: compared for equality; [B, L] and a memory of segment 0, or [B, M + L].
            blind_BP: False where a query starts from its token all the same; None: nowhere.
            backward_B: rows whose text stands in reverse; None: no such rows.
            reuse_len: in the place of the field.
        """
        refuse_arguments("a model of relative positions", positions_BL=positions_BL)
        B, L = tokens_BL.shape
        memory_NBMD = None if memory is None else memory.h_NBMD
        M = 0 if memory_NBMD is None else memory_NBMD.shape[2]
        embedded_BLD = embed_tokens(self, self.token_VD, tokens_BL, self.dtype)
        x_BLD = constrain_sharding(self.drop(embedded_BLD, train=train), "BLD")
        streams = [x_BLD if edit is None else edit(x_BLD)]
        views, last = make_views(mask, _pad_segments(segments_BL, B, L, M), L, slots_BP)
        if mask.hides_slots and slots_BP is not None:
            # The states of the slots are then the query stream's.  Two draws of dropout, on the
            # content and on the queries: as the released code.
            g_BPD = _start_queries(self.query_1D, embedded_BLD, slots_BP, blind_BP)
            streams.append(constrain_sharding(self.drop(g_BPD, train=train), "BPD"))
        distances = self._embed_distances(B, L, M, backward_B, train)
        reuse_len = self.reuse_len if reuse_len is None else reuse_len
        h_BLD, memory_NBMD, _ = self.stack(
            streams, views, last, memory_NBMD, distances, reuse_len=reuse_len, train=train
        )
        memory = None if memory_NBMD is None else Memory(memory_NBMD)
        # The released code drops out what it reads of the last layer, too; the memory it does not.
        return Output(self.drop(h_BLD, train=train), memory)

    def refusal(self, mask: Mask) -> str:
        """Says why a mask cannot be honoured; "": all masks can."""
        del mask
        return ""

    def layer_states(self, tokens_BL, *, mask: Mask, segments_BL=None, memory=None) -> Output:
        """Computes what every layer makes of the content, without dropout: [N + 1, B, L, D]."""
        refuse_arguments("a reader of whole rows", memory=memory)
        B, L = tokens_BL.shape
        views = make_views(mask, _pad_segments(segments_BL, B, L, 0), L, None)
        distances = self._embed_distances(B, L, 0, None, train=False)
        x_BLD = embed_tokens(self, self.token_VD, tokens_BL, self.dtype)
        h_BLD, _, h_NBLD = self.stack([x_BLD], *views, None, distances, train=False, every=True)
        # The first is the tokens' embedding; the last is what a call gives.
        return Output(jnp.concatenate([h_NBLD, h_BLD[None]]))

    def initial_memory(self, B: int) -> Memory | None:
        """Returns zeros, which the released code attends to in its first window; None if M = 0."""
        return Memory(jnp.zeros((self.N, B, self.M, self.D), self.dtype)) if self.M else None

    def table(self):
        return self.token_VD

    def example(self):
        return jnp.zeros((1, 1), jnp.int32)

    def flops(self, B: int, L: int, P: int, *, has_queries: bool = False) -> float:
        stack = TwoStreamStack(**shared_fields(self, TwoStreamStack), parent=None)
        return stack.flops(B, L, P, self.M * has_queries, has_queries)  # plm's read a memory, too

    def _embed_distances(self, B: int, L: int, M: int, backward_B, train: bool) -> Distances:
        num_tables = 0 if self.shared_distances else B
        distances = make_distances(L, M, self.D, self.clamp_len, backward_B, num_tables)
        # The released code drops out the sinusoids, too.
        table = self.drop(distances.table.astype(self.dtype), train=train)
        return distances._replace(table=table)


def _start_queries(query_1D, embedded_BLD, slots_BP, blind_BP):
    """Returns the query stream before the first layer: one learned vector, whatever the token."""
    g_BPD = jnp.broadcast_to(query_1D, (*slots_BP.shape, query_1D.shape[-1]))
    if blind_BP is None:
        return g_BPD
    token_BPD = jnp.take_along_axis(embedded_BLD, slots_BP[..., None], axis=1)
    return jnp.where(blind_BP[..., None], g_BPD, token_BPD)


def _pad_segments(segments_BL, B: int, L: int, M: int):
    """Puts segment 0 of the memory in front, [B, M + L]; None: all are of one segment."""
    segments_BL = jnp.zeros((B, L), jnp.int32) if segments_BL is None else segments_BL
    return jnp.pad(segments_BL, ((0, 0), (M + L - segments_BL.shape[1], 0)))
