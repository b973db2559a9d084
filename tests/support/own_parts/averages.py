"""Averages: each layer mixes a state with the mean of the states that it sees."""

from typing import ClassVar

import jax
import jax.numpy as jnp
from flax import linen as nn

from modules.backbones import Output, refuse_arguments
from modules.layers import params
from modules.masks import Mask, at


class Backbone(nn.Module):
    """Tokens to states, under any mask but one with a memory or a query stream.

    Attributes:
        V, D, N: vocabulary, width, layers.
        is_causal: texts are read from left to right, where no objective says so.
    """

    FREE_FIELDS: ClassVar[frozenset[str]] = frozenset({"dtype"})

    V: int
    D: int = 16
    N: int = 2
    dtype: str = "float32"
    is_causal: bool = False

    def setup(self):
        matrix, table = (self.D, 2 * self.D), (self.V, self.D)
        self.token_VD = params.param(
            self, "token_VD", params.normal(0.02), table, decay=True, is_table=True, depth=0
        )
        self.w_DF = [
            params.param(self, f"w{n}_DF", params.normal(0.1), matrix, decay=True, depth=n + 1)
            for n in range(self.N)
        ]

    def __call__(
        self,
        tokens_BL,
        *,
        mask: Mask,
        segments_BL=None,
        positions_BL=None,
        slots_BP=None,
        memory=None,
        edit=None,
        train: bool,
    ) -> Output:
        """Computes states [B, L, D], or [B, P, D] of the slots."""
        refuse_arguments("a mean", positions_BL=positions_BL, memory=memory, edit=edit)
        h_NBLD = self.layer_states(tokens_BL, mask=mask).h
        return Output(at(h_NBLD[-1], slots_BP))

    def layer_states(self, tokens_BL, *, mask: Mask, segments_BL=None, memory=None) -> Output:
        """Computes the embeddings and what each layer makes of them: [N + 1, B, L, D]."""
        if reason := self.refusal(mask):
            raise ValueError(reason)
        L = tokens_BL.shape[1]
        seen_BLJ = jnp.broadcast_to(mask.dense(L), (len(tokens_BL), L, L)).astype(jnp.float32)
        share_BLJ = seen_BLJ / jnp.maximum(seen_BLJ.sum(-1, keepdims=True), 1)
        states = [self.token_VD[tokens_BL]]
        for w_DF in self.w_DF:
            mean_BLD = jnp.einsum("BLJ,BJD->BLD", share_BLJ, states[-1])
            both_BLF = jnp.concatenate([states[-1], mean_BLD], axis=-1)
            states.append(states[-1] + jax.nn.gelu(jnp.einsum("BLF,DF->BLD", both_BLF, w_DF)))
        return Output(jnp.stack(states))

    def refusal(self, mask: Mask) -> str:
        """Says why a mask cannot be honoured; "" if it can."""
        return "a mean has one stream" if mask.hides_slots else ""

    def initial_memory(self, B: int) -> None:
        """Returns None: there is no memory."""

    def example(self):
        """Returns the smallest tokens, to make the parameters with."""
        return jnp.zeros((1, 1), jnp.int32)

    def table(self):
        """Returns the tokens' embedding, [V, D]."""
        return self.token_VD

    def flops(self, B: int, L: int, P: int) -> float:
        """Counts the operations of a training step."""
        return 3.0 * B * self.N * L * (4 * self.D**2 + 2 * L * self.D)
