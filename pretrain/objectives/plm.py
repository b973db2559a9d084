"""Permutation LM (XLNet): guess a few tokens of a window in a random order."""

from typing import ClassVar

import jax
import jax.numpy as jnp
from flax import linen as nn

from modules import plugins
from modules.losses import cross_entropy
from modules.masks import Mask, count_lengths
from pretrain.objectives import SPECIAL, Special, corruption, is_special
from pretrain.objectives.window_order import WindowOrder


class Objective(nn.Module):
    """Yang et al. 2019, sections 2.2 to 2.5, on windows of `pretrain.data.batches.lanes`.

    A window is two parts, `backbone.reuse_len` positions that the memory will keep and the rest;
    each has its own spans and its own order, and the second sees all of the first.

    Attributes:
        predict_every: predicts one token in so many (the paper's K).
        perm_size: length of the chunks that are permuted alike; 0: a whole part.
        spans: predicts spans of tokens; False: single tokens (an ablation of the paper).
        max_gram, alpha, beta, faithful: of `corruption.sample_spans`.
        reset: memory ends where a document begins; False lets it run on, as the released code.
        special: the tokenizer's special ids; "cls" and "sep" are never predicted.
        loss_chunks: chunks in which the vocabulary's softmax is computed.
    """

    backbone: nn.Module
    head: nn.Module
    predict_every: int = 6
    perm_size: int = 0
    spans: bool = True
    max_gram: int = 5
    alpha: int = 6
    beta: int = 1
    faithful: bool = False
    reset: bool = True
    loss_chunks: int = 4
    special: Special = SPECIAL
    required_special: ClassVar[tuple[str, ...]] = ("cls", "sep")
    predicts_slots_together: ClassVar[bool] = False

    def __call__(self, batch, *, train: bool):
        states = self._predict(batch, train=train)
        _, ids_BP, weights_BP = states
        sums = self.head.cross_entropy(*states, self.backbone.table(), chunks=self.loss_chunks)
        if not train:
            sums["unigram"] = cross_entropy.histogram(ids_BP, weights_BP, self.backbone.V)
        return sums

    def nats(self, batch):
        """Computes the log-likelihood of each predicted token, and its weight: [B, P] each."""
        h_BPD, ids_BP, weights_BP = self._predict(batch, train=False)
        table_VD = self.backbone.table()
        return self.head.nats(h_BPD, ids_BP, table_VD, chunks=self.loss_chunks), weights_BP

    def slot_states(self, batch):
        """Computes query states of slots that nothing else of the row sees: [B, P, D]."""
        tokens_BL, slots_BP = batch["tokens_BL"], batch["slots_BP"]
        rows_B1 = jnp.arange(len(tokens_BL))[:, None]
        # The slots come last in the order: all positions see the others, and none sees them.
        rank_BL = jnp.zeros_like(tokens_BL).at[rows_B1, slots_BP].set(1)
        order = Mask(rank_BL=rank_BL, sees_below_BL=jnp.ones_like(rank_BL), hides_slots=True)
        mask = order & Mask(lengths_B=count_lengths(batch["valid_BL"]))
        more = dict(segments_BL=batch.get("segments_BL"), slots_BP=slots_BP, train=False)
        return self.backbone(tokens_BL, mask=mask, **more).h

    @nn.compact
    def _predict(self, batch, *, train: bool):
        """Computes query states; returns (states, targets, weights), [B, P] each."""
        tokens_BL, starts_BL = batch["tokens_BL"], batch["document_start_BL"]
        P = self.predicted(tokens_BL.shape[1])
        memory = self._memory(starts_BL)
        targets_BL, rank_BL, sees_below_BL = self.corrupt(batch)
        slots_BP, real_BP = corruption.find_targets(targets_BL, P)
        order = Mask(rank_BL=rank_BL, sees_below_BL=sees_below_BL, hides_slots=True)
        out = self.backbone(
            tokens_BL,
            mask=order & self._memory_mask(memory, starts_BL),
            segments_BL=batch["segments_BL"],
            slots_BP=slots_BP,
            memory=memory and memory["states"].value,
            backward_B=batch.get("backward_B"),
            train=train,
        )
        self._remember(memory, out.memory, starts_BL)
        ids_BP = jnp.take_along_axis(tokens_BL, slots_BP, axis=1)
        return out.h, ids_BP, real_BP * batch["weight_B"][:, None]

    def refusal(self) -> str:
        ranks_BL = jnp.zeros((1, 1), jnp.int32)
        order = Mask(rank_BL=ranks_BL, sees_below_BL=ranks_BL, hides_slots=True)
        return self.backbone.refusal(order)

    def predicted(self, L: int) -> int:
        return self._order().predicted(L)

    def flops(self, B: int, L: int) -> float:
        P = self.predicted(L)
        return self.backbone.flops(B, L, P, has_queries=True) + self.head.flops(B * P)

    def _memory(self, starts_BL):
        # None if the backbone has no memory.
        B, M = starts_BL.shape[0], self.backbone.M
        if not M:
            return None
        return {
            "states": self.variable("memory", "states", self.backbone.initial_memory, B),
            # The released code attends to its first, empty memory; with `reset` nobody does.
            "alive_BM": self.variable("memory", "alive_BM", jnp.full, (B, M), not self.reset),
        }

    def _memory_mask(self, memory, starts_BL) -> Mask:
        """Hides memory of other documents: what is not alive, and all once a document began."""
        if memory is None:
            return Mask()
        sees_memory_BL = jnp.cumsum(starts_BL, axis=1) == 0 if self.reset else None
        return Mask(memory_BM=memory["alive_BM"].value, sees_memory_BL=sees_memory_BL)

    def _remember(self, memory, new, starts_BL):
        """Stores the new states; those before a document's beginning are no longer alive."""
        # `init` must leave the first memory empty.
        if memory is None or self.is_initializing() or not self.is_mutable_collection("memory"):
            return
        memory["states"].value = new
        if self.reset:
            # An entry lives on while no document has begun after it.
            alive_BM = memory["alive_BM"].value
            # Only what the memory keeps of this window: the backbone drops the rest, too.
            starts_BR = starts_BL[:, : self.backbone.reuse_len]
            alive_BJ = jnp.concatenate([alive_BM, jnp.ones_like(starts_BR)], axis=1)
            starts_BJ = jnp.concatenate([jnp.zeros_like(alive_BM), starts_BR], axis=1)
            starts_ahead_BJ = jnp.cumsum(starts_BJ[:, ::-1], axis=1)[:, ::-1] - starts_BJ
            memory["alive_BM"].value = (alive_BJ & (starts_ahead_BJ == 0))[:, -self.backbone.M :]

    def corrupt(self, batch):
        """Samples targets, ranks, and the rank below which each place sees: [B, L] each."""
        tokens_BL = batch["tokens_BL"]
        B = tokens_BL.shape[0]
        special_BL = is_special(tokens_BL, self.special, "cls", "sep")
        backward_B = batch.get("backward_B", jnp.zeros(B, bool))
        # A key per row: a row's draws do not depend on how the batch is sharded.
        keys_B = jax.random.split(self.make_rng("corrupt"), B)
        rows = (keys_B, special_BL, batch["word_starts_BL"], backward_B)
        return jax.vmap(self._order().draw)(*rows)

    def _order(self) -> WindowOrder:
        return WindowOrder(self.backbone.reuse_len, **plugins.shared_fields(self, WindowOrder))
