"""Causal LM (GPT, AWD-LSTM): predict every token from those before it."""

from typing import ClassVar

import jax.numpy as jnp
from flax import linen as nn

from modules.layers.dropout import Dropout
from modules.losses import cross_entropy, neural_cache
from modules.losses.activation_regularization import penalize_change, penalize_size
from modules.masks import Mask, count_lengths
from modules.metrics import Metrics, Sum
from pretrain.objectives import SPECIAL, Special, refuse_width
from pretrain.objectives.carried_memory import open_memory, save_memory
from pretrain.runtime.errors import UserError


class Objective(nn.Module):
    """Radford et al. 2018 and 2019, on windows of running text (`pretrain.data.batches.windows`).

    With an AWD-LSTM, on rows that go on from batch to batch (`pretrain.data.batches.bptt`), the
    language model of Merity et al. 2017 (arXiv 1708.02182).

    Attributes:
        attend_across_documents: a document sees those before it in its row, as GPT's; False:
            itself alone.
        stateful: a row goes on from the state at its last batch's end; False: from zeros.
        dropout: of the last states where the softmax reads them, the same at all positions of a
            row (the AWD-LSTM's `dropout`).
        ar, tar: weights of the penalties of the states' size and change, the paper's alpha and
            beta, see `activation_regularization`; 0: none.
        cache_window, cache_theta, cache_share: of a `neural_cache` in evaluation: positions, how
            much alike states must be, and the share of its prediction; 0 positions: none.
        loss_chunks: pieces in which the vocabulary's softmax is taken.
        special: the tokenizer's special ids, of which this needs none.
    """

    backbone: nn.Module
    head: nn.Module
    attend_across_documents: bool = False
    stateful: bool = False
    dropout: float = 0.0
    ar: float = 0.0
    tar: float = 0.0
    cache_window: int = 0
    cache_theta: float = 0.6625
    cache_share: float = 0.1279
    loss_chunks: int = 4
    special: Special = SPECIAL

    predicts_slots_together: ClassVar[bool] = True

    def __call__(self, batch, *, train: bool):
        h_BLD, dropped_BLD, next_BL, weights_BL = self._predict(batch, train=train)
        # Held-out numbers are without penalties, which belong to no likelihood.
        if not train:
            return self._evaluate(batch, h_BLD, next_BL, weights_BL)
        states = dropped_BLD, next_BL, weights_BL, self.backbone.table()
        sums = self.head.cross_entropy(*states, chunks=self.loss_chunks)
        return sums | self._penalize(h_BLD, dropped_BLD, weights_BL)

    def _evaluate(self, batch, h_BLD, next_BL, weights_BL) -> Metrics:
        table_VD = self.backbone.table()
        if self.cache_window:
            # The cache mixes each position's probability with its own, so one product serves both.
            nats_BL, hits_BL = self.head.score_targets(
                h_BLD, next_BL, table_VD, chunks=self.loss_chunks
            )
            sums = cross_entropy.add_up(nats_BL, hits_BL, weights_BL)
            sums |= self._predict_by_cache(batch, h_BLD, nats_BL, weights_BL)
        else:
            states = h_BLD, next_BL, weights_BL, table_VD
            sums = self.head.cross_entropy(*states, chunks=self.loss_chunks)
        # Per word and byte of the original text: comparable between tokenizers.
        for unit in ("word", "byte"):
            weight = (batch[f"{unit}s_B"] * batch["weight_B"]).sum()
            sums[f"{unit}_perplexity"] = Sum(sums["loss"].total, weight, "perplexity")
        sums["unigram"] = cross_entropy.histogram(next_BL, weights_BL, self.backbone.V)
        return sums

    def nats(self, batch):
        """Computes the log-likelihood of each next token, and its weight: [B, L] each."""
        h_BLD, _, next_BL, weights_BL = self._predict(batch, train=False)
        table_VD = self.backbone.table()
        return self.head.nats(h_BLD, next_BL, table_VD, chunks=self.loss_chunks), weights_BL

    def slot_states(self, batch):
        """Computes the states before slots, from 1 on, which have not seen them: [B, P, D]."""
        mask = Mask(is_causal=True, lengths_B=count_lengths(batch["valid_BL"]))
        h_BLD = self.backbone(batch["tokens_BL"], mask=mask, train=False).h
        return jnp.take_along_axis(h_BLD, batch["slots_BP"][..., None] - 1, axis=1)

    @nn.compact
    def _predict_by_cache(self, batch, h_BLD, nats_BL, weights_BL) -> Metrics:
        B, _, D = h_BLD.shape
        shape = B, self.cache_window, D, h_BLD.dtype
        state = self.variable("state", "cache", neural_cache.init_cache, *shape)
        # A row that does not go on has an empty cache, whatever its place held before.
        count_B = jnp.where(batch["continues_B"], state.value.count_B, 0)
        cache, next_BL = state.value._replace(count_B=count_B), batch["next_BL"]
        p_BL, is_filled_BL, new = neural_cache.predict(
            cache, h_BLD, next_BL, batch["valid_BL"], self.cache_theta
        )
        save_memory(self, state, new)
        nats_BL = neural_cache.mix(nats_BL, p_BL, is_filled_BL, self.cache_share)
        total = -(nats_BL * weights_BL).sum()
        return {"cache_perplexity": Sum(total, weights_BL.sum(), "perplexity")}

    def _penalize(self, h_BLD, dropped_BLD, weights_BL) -> Metrics:
        sums = {}
        if self.ar:
            sums["ar"] = penalize_size(dropped_BLD, weights_BL, self.ar)
        if self.tar:
            sums["tar"] = penalize_change(h_BLD, weights_BL, self.tar)
        return sums

    @nn.compact
    def _predict(self, batch, *, train: bool):
        """Computes states; returns (states, the same dropped out, targets, weights)."""
        if "next_BL" not in batch:
            raise UserError("objective 'clm' needs batches.name='windows' with framed=False")
        if self.stateful and "continues_B" not in batch:
            raise UserError("objective.stateful=True needs batches.name='bptt'")
        next_BL = batch["next_BL"]
        lengths_B = count_lengths(batch["valid_BL"])  # windows are padded at their end
        mask = Mask(is_causal=True, lengths_B=lengths_B, groups_BL=self._group(batch))
        state = open_memory(self, len(next_BL)) if self.stateful else None
        h_BLD, new = self.backbone(
            batch["tokens_BL"], mask=mask, memory=state and state.value, train=train
        )
        save_memory(self, state, new)
        # `tar` is of the states as they are, `ar` of what the softmax reads, as the paper has it.
        dropped_BLD = Dropout(self.dropout, shared=(1,))(h_BLD, train=train)
        return h_BLD, dropped_BLD, next_BL, batch["loss_mask_BL"] * batch["weight_B"][:, None]

    def _group(self, batch):
        """Counts what has begun so far in each row: places of one number see each other."""
        if self.attend_across_documents and not self.stateful:
            return None
        starts_BL = batch["document_start_BL"] & (not self.attend_across_documents)
        if self.stateful:
            # Text that goes on from the memory is of group 0, as the memory is.
            is_new_BL = (jnp.arange(starts_BL.shape[1]) == 0) & ~batch["continues_B"][:, None]
            starts_BL = starts_BL | is_new_BL
        return jnp.cumsum(starts_BL, axis=1)

    def refusal(self) -> str:
        if reason := self.backbone.refusal(Mask(is_causal=True)):
            return reason
        if self.backbone.example().ndim > 2:
            return "a causal LM reads ids of tokens, not characters: set model.inputs='words'"
        if not self.backbone.is_causal:
            return "it reads left to right: set model.attention='causal'"
        # Another memory would have to be told which of its positions are of the same document.
        if self.stateful and not getattr(self.backbone, "is_recurrent", False):
            return "it has no state to go on from: set objective.stateful=False"
        if self.cache_window and not self.stateful:
            return (
                "a cache goes on from batch to batch: that takes objective.stateful=True, and a "
                "model with a state, as the AWD-LSTM"
            )
        return refuse_width(self.backbone, self.head)

    def flops(self, B: int, L: int) -> float:
        return self.backbone.flops(B, L, L) + self.head.flops(B * L)
