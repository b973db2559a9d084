"""Causal LM (GPT): predict every token from those before it."""

import jax.numpy as jnp
from flax import linen as nn

from modules.losses import cross_entropy
from modules.masks import Mask, count_lengths
from modules.metrics import Sum
from pretrain.objectives import SPECIAL, Special, refuse_width
from pretrain.runtime.errors import UserError


class Objective(nn.Module):
    """Radford et al. 2018 and 2019, on windows of running text (`pretrain.data.batches.windows`).

    Attributes:
        attend_across_documents: a document sees those before it in its row, as GPT's; False:
            itself alone.
        loss_chunks: pieces in which the vocabulary's softmax is taken.
        special: the tokenizer's special ids, of which this needs none.
    """

    backbone: nn.Module
    head: nn.Module
    attend_across_documents: bool = False
    loss_chunks: int = 4
    special: Special = SPECIAL

    def __call__(self, batch, *, train: bool):
        states = self._predict(batch, train=train)
        _, next_BL, weights_BL = states
        sums = self.head.cross_entropy(*states, self.backbone.table(), chunks=self.loss_chunks)
        if not train:
            nats, weight_B = sums["loss"].total, batch["weight_B"]
            # Per word and byte of the original text: comparable between tokenizers.
            for unit in ("word", "byte"):
                weight = (batch[f"{unit}s_B"] * weight_B).sum()
                sums[f"{unit}_perplexity"] = Sum(nats, weight, "perplexity")
            sums["unigram"] = cross_entropy.histogram(next_BL, weights_BL, self.backbone.V)
        return sums

    def nats(self, batch):
        """Computes the log-likelihood of each next token, and its weight: [B, L] each."""
        h_BLD, next_BL, weights_BL = self._predict(batch, train=False)
        table_VD = self.backbone.table()
        return self.head.nats(h_BLD, next_BL, table_VD, chunks=self.loss_chunks), weights_BL

    def _predict(self, batch, *, train: bool):
        """Computes states; returns (states, targets, weights), [B, L] each."""
        if "next_BL" not in batch:
            raise UserError("objective 'clm' needs batches.name='windows' with framed=False")
        next_BL = batch["next_BL"]
        lengths_B = count_lengths(batch["valid_BL"])  # windows are padded at their end
        groups_BL = None
        if not self.attend_across_documents:
            # The number of documents begun so far names the document.
            groups_BL = jnp.cumsum(batch["document_start_BL"], axis=1)
        mask = Mask(is_causal=True, lengths_B=lengths_B, groups_BL=groups_BL)
        h_BLD = self.backbone(batch["tokens_BL"], mask=mask, train=train).h
        return h_BLD, next_BL, batch["loss_mask_BL"] * batch["weight_B"][:, None]

    def refusal(self) -> str:
        if reason := self.backbone.refusal(Mask(is_causal=True)):
            return reason
        if self.backbone.example().ndim > 2:
            return "a causal LM reads ids of tokens, not characters: set model.inputs='words'"
        if not self.backbone.is_causal:
            return "it reads left to right: set model.attention='causal'"
        return refuse_width(self.backbone, self.head)

    def flops(self, B: int, L: int) -> float:
        return self.backbone.flops(B, L, L) + self.head.flops(B * L)
