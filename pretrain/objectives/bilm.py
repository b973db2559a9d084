"""Bidirectional LM (ELMo): predict each word from those before it, and from those after it."""

import math
from typing import ClassVar

import jax
import jax.numpy as jnp
from flax import linen as nn

from modules.losses import cross_entropy, sampled_softmax
from modules.masks import Mask
from modules.metrics import Sum
from pretrain.objectives import SPECIAL, Special, special_id
from pretrain.objectives.carried_memory import open_memory, save_memory
from pretrain.runtime.errors import UserError

# A row's states are reset where its `boundary_BZL` is at least this, see `batches.bidirectional`.
RESETS = {"never": 3, "document": 2, "sentence": 1}


class Objective(nn.Module):
    """Peters et al. 2018, section 3.1, on texts read from both ends
    (`pretrain.data.batches.bidirectional`).

    Attributes:
        stateful: a row goes on from the states at its last batch's end, as the released code;
            False: from zeros, so that no batch depends on those before it.
        reset: where a row starts from zeros besides: "never", as the released code, at each
            "document", or at each "sentence".
        samples: negatives of the sampled softmax while training; 0: the full softmax.
        loss_chunks: chunks in which the full softmax is computed; a sampled one has so many fewer
            as its candidates are fewer.
        special: the tokenizer's special ids; "unk" is needed.
    """

    backbone: nn.Module
    head: nn.Module
    stateful: bool = True
    reset: str = "document"
    samples: int = 0
    loss_chunks: int = 4
    special: Special = SPECIAL
    required_special: ClassVar[tuple[str, ...]] = ("unk",)

    def __call__(self, batch, *, train: bool):
        h_BZLD, next_BZL, weights_BZL = self._predict(batch, train=train)
        # The sampled softmax of each direction draws negatives of its own.
        ways = [
            self._loss(h_BZLD[:, z], next_BZL[:, z], weights_BZL[:, z], train)
            for z in range(self.backbone.Z)
        ]
        # Totals and weights of both: their mean is the mean over all predictions.
        sums = jax.tree.map(lambda *parts: sum(parts), *ways)
        if not train:
            for name, way in zip(("forward", "backward"), ways, strict=False):
                loss = way["loss"]
                sums[f"{name}_perplexity"] = Sum(loss.total, loss.weight, "perplexity")
            sums["unigram"] = cross_entropy.histogram(next_BZL, weights_BZL, self.backbone.V)
            unknown_BZL = next_BZL == special_id(self.special, "unk")
            sums["unknown"] = Sum((unknown_BZL * weights_BZL).sum(), weights_BZL.sum(), "share")
        return sums

    def nats(self, batch):
        """Computes the log-likelihood of each word, one direction after the other: [B, ZL]."""
        states = self._predict(batch, train=False)
        h_BPD, next_BP, weights_BP = (x.reshape(len(x), -1, *x.shape[3:]) for x in states)
        table_VD = self.backbone.table()
        return self.head.nats(h_BPD, next_BP, table_VD, chunks=self.loss_chunks), weights_BP

    @nn.compact
    def _predict(self, batch, *, train: bool):
        """Computes states; returns (states, next words, weights), [B, Z, L] each."""
        self._check(batch)
        Z = self.backbone.Z
        rows = batch["boundary_BZL"].shape[0]
        state = open_memory(self, rows) if self.stateful else None
        # A model of one direction reads the first, forwards, of the two that every batch holds.
        starts_BZL = batch["boundary_BZL"][:, :Z] >= RESETS[self.reset]
        # Places of one group share a state: a new group starts from zeros.
        mask = Mask(is_causal=True, groups_BL=jnp.cumsum(starts_BZL, axis=-1))
        h_BZLD, new = self.backbone(
            self._inputs(batch)[:, :Z], mask=mask, memory=state and state.value, train=train
        )
        save_memory(self, state, new)
        next_BZL = self._replace_unknown(batch["next_BZL"][:, :Z])
        weights_BZL = batch["loss_mask_BZL"][:, :Z] * batch["weight_B"][:, None, None]
        return h_BZLD, next_BZL, weights_BZL

    def refusal(self) -> str:
        if getattr(self.backbone, "has_separate_directions", False):
            return ""
        return (
            "a bidirectional LM needs layers of its own for each direction, which share nothing "
            "but the embedding: set model.name='elmo', or 'text_rnn' with sharing='shared'"
        )

    def flops(self, B: int, L: int) -> float:
        heads = self.head.flops(B * self.backbone.Z * L, self.samples)
        return self.backbone.flops(B, L, L) + heads

    def _check(self, batch) -> None:
        if "boundary_BZL" not in batch:
            raise UserError("objective 'bilm' needs batches.name='bidirectional'")
        if self.reset not in RESETS:
            raise UserError(f"objective.reset={self.reset!r} is none of {', '.join(RESETS)}")
        if self.backbone.inputs == "characters" and "chars_BZLW" not in batch:
            raise UserError("model.inputs='characters' needs batches.characters, such as 50")
        if not self.backbone.V:
            raise UserError("model.V=0: this model has no softmax to predict words with")
        if self.samples >= self.backbone.V:
            raise UserError(
                f"objective.samples={self.samples} of model.V={self.backbone.V} words: draw fewer, "
                "or none (samples=0) for the full softmax"
            )

    def _inputs(self, batch):
        # A word that is predicted as <unk> keeps its own characters as an input.
        if self.backbone.inputs == "characters":
            return batch["chars_BZLW"]
        return self._replace_unknown(batch["tokens_BZL"])

    def _replace_unknown(self, ids_BZL):
        # Words are numbered by frequency, so those beyond V are the rarest.
        return jnp.where(ids_BZL < self.backbone.V, ids_BZL, special_id(self.special, "unk"))

    def _loss(self, h_BLD, ids_BL, weights_BL, train: bool):
        states = h_BLD, ids_BL, weights_BL, self.backbone.table()
        if not (train and self.samples):
            return self.head.cross_entropy(*states, chunks=self.loss_chunks)
        sample = sampled_softmax.sample_negatives(
            self.make_rng("corrupt"), self.samples, self.backbone.V
        )
        # As many logits at once as of the full softmax, at most.
        chunks = math.ceil(self.loss_chunks * self.samples / self.backbone.V)
        return self.head.sampled_cross_entropy(*states, sample, chunks=chunks)
