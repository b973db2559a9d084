"""Draws what a window's queries predict and the order in which its tokens are read.

Yang et al. 2019, sections 2.2 and 2.3.
"""

import dataclasses

import jax
import jax.numpy as jnp

from modules.sampling import sample_positions
from pretrain.objectives import corruption
from pretrain.runtime.errors import UserError


@dataclasses.dataclass(frozen=True)
class WindowOrder:
    """Draws targets and an order for either part of a window.

    Attributes:
        reuse_len: length of the first part.
        predict_every, perm_size, spans, max_gram, alpha, beta, faithful: as `plm.Objective`.
    """

    reuse_len: int
    predict_every: int
    perm_size: int
    spans: bool
    max_gram: int
    alpha: int
    beta: int
    faithful: bool

    def predicted(self, L: int) -> int:
        return int(L / self.predict_every)

    def draw(self, rng, special_L, word_starts_L, backward):
        """Draws (targets, ranks, the rank below which each place sees) of a row: [L] each.

        Args:
            special_L: where a token is never predicted.
            word_starts_L: where a word begins.
            backward: the row stands in reverse.
        """
        L, cut = special_L.shape[0], self.reuse_len
        self._check(L)
        goal = self.predicted(L)
        # As the released code: the first part has the odd one.
        goals, parts = (goal - goal // 2, goal // 2), ((0, cut), (cut, L))
        parts_ranks = []
        # The parts' orders and spans are independent.
        rngs = jax.random.split(rng, (2, 2))
        for (span_rng, order_rng), goal, (a, b) in zip(rngs, goals, parts, strict=True):
            special, starts = special_L[a:b], word_starts_L[a:b]
            picked = self._pick(span_rng, starts, ~special, goal, backward)
            order = corruption.sample_order(order_rng, b - a, self.perm_size or b - a)
            parts_ranks.append((picked, *corruption.rank_positions(order, picked, special)))
        (first, *earlier), (second, *later) = parts_ranks
        return jnp.append(first, second), *corruption.concatenate_ranks(earlier, later, cut)

    def _pick(self, rng, starts_L, eligible_L, goal, backward):
        """Picks positions to predict in one part; of a backward row, in reading order."""
        if not self.spans:
            return sample_positions(rng, eligible_L, goal)

        # A span begins at the start of a word in reading order, so a backward row is flipped.
        def flip(x_L):
            return jnp.where(backward, x_L[::-1], x_L)

        picked_L = corruption.sample_spans(
            rng,
            flip(starts_L),
            flip(eligible_L),
            goal,
            max_gram=self.max_gram,
            alpha=self.alpha,
            beta=self.beta,
            faithful=self.faithful,
        )
        return flip(picked_L)

    def _check(self, L: int) -> None:
        reuse_len = self.reuse_len
        parts = (reuse_len, L - reuse_len)
        if self.predicted(L) < 2:
            raise UserError(
                f"predict_every={self.predict_every} leaves nothing to predict in L={L} tokens"
            )
        if not 0 < reuse_len < L:
            raise UserError(
                f"reuse_len={reuse_len} must leave two parts of a window of L={L} tokens"
            )
        if self.perm_size and any(part % self.perm_size for part in parts):
            raise UserError(
                f"objective.perm_size={self.perm_size} must divide both parts of a window, "
                f"{parts}: batches.reuse_len and the rest of batches.L"
            )
