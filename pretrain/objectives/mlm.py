"""Masked LM (BERT): hide 15% of the tokens and predict them from both sides."""

import math
from typing import ClassVar

import jax
import jax.numpy as jnp
from flax import linen as nn

from modules.heads.next_sentence import NextSentenceHead
from modules.losses import cross_entropy
from modules.masks import Mask, count_lengths
from modules.plugins import shared_fields
from pretrain.objectives import (
    SPECIAL,
    Special,
    corruption,
    is_special,
    refuse_width,
    special_id,
)
from pretrain.objectives.row_examples import (
    Examples,
    count_examples,
    count_slots,
    find_examples,
    weigh_examples,
)
from pretrain.runtime.errors import UserError


class Objective(nn.Module):
    """Devlin et al. 2019, section 3.1, on rows of `pretrain.data.batches.pairs` or framed
    `windows`.  Where a row has several examples (`batches.pack`), what is said of a row is meant of
    each of them, which attends to itself and counts its positions from 0.

    Attributes:
        mask_prob: share of a row's tokens that is predicted; special tokens count as tokens.
        max_predictions: upper limit of a row; 0: `mask_prob` of a full row.
        mask_rate, random_rate: share of those replaced by <mask>, share replaced at random.
        whole_word_mask: predicts all tokens of a word, or none.
        max_gram: longest run of tokens, or of words, picked together (ALBERT).
        geometric: chance of a run to end after each unit (SpanBERT: 0.2); 0: a run of n has
            odds of 1 / n.
        nsp: predicts whether B follows A, too, or of `clicks` whether it was clicked; without it
            the batch needs no pairs (RoBERTa).
        loss_chunks: chunks in which the vocabulary's softmax is computed.
        special: the tokenizer's special ids: "mask", and those that are never predicted.
    """

    backbone: nn.Module
    head: nn.Module
    mask_prob: float = 0.15
    max_predictions: int = 0
    mask_rate: float = 0.8
    random_rate: float = 0.1
    whole_word_mask: bool = False
    max_gram: int = 1
    geometric: float = 0.0
    nsp: bool = True
    loss_chunks: int = 1
    special: Special = SPECIAL
    required_special: ClassVar[tuple[str, ...]] = ("mask",)
    predicts_slots_together: ClassVar[bool] = False

    def setup(self):
        # A backbone without one is refused in `_next_sentence`, by name.
        if self.nsp and getattr(self.backbone, "pooler", False):
            self.next_head = NextSentenceHead(**shared_fields(self.backbone, NextSentenceHead))
            nn.share_scope(self, self.next_head)  # its parameters are the objective's

    def __call__(self, batch, *, train: bool):
        examples = find_examples(batch)
        first_BOD, *states = self._predict(batch, examples, train=train)
        _, ids_BP, weights_BP = states
        sums = self.head.cross_entropy(*states, self.backbone.table(), chunks=self.loss_chunks)
        if self.nsp:
            sums |= self._next_sentence(first_BOD, batch, weigh_examples(batch, examples))
        if examples.number_BL is not None:
            sums |= count_examples(batch, examples)
        if not train:
            sums["unigram"] = cross_entropy.histogram(ids_BP, weights_BP, self.backbone.V)
        return sums

    def nats(self, batch):
        """Computes the log-likelihood of each hidden token, and its weight: [B, P] each."""
        _, h_BPD, ids_BP, weights_BP = self._predict(batch, find_examples(batch), train=False)
        table_VD = self.backbone.table()
        return self.head.nats(h_BPD, ids_BP, table_VD, chunks=self.loss_chunks), weights_BP

    def slot_states(self, batch):
        """Computes the states of positions that are masked, by slots: [B, P, D]."""
        tokens_BL, slots_BP = batch["tokens_BL"], batch["slots_BP"]
        rows_B1 = jnp.arange(len(tokens_BL))[:, None]
        hidden_BL = tokens_BL.at[rows_B1, slots_BP].set(special_id(self.special, "mask"))
        mask = Mask(lengths_B=count_lengths(batch["valid_BL"]))
        more = dict(segments_BL=batch.get("segments_BL"), slots_BP=slots_BP, train=False)
        return self.backbone(hidden_BL, mask=mask, **more).h

    def _predict(self, batch, examples: Examples, *, train: bool):
        """Computes states; returns (those of <cls>, those of hidden tokens, targets, weights)."""
        tokens_BL, (_, count) = batch["tokens_BL"], examples.starts_BO.shape
        if reason := self.backbone.refusal(examples.mask):
            raise UserError(f"batches.pack={count} does not go with this model: {reason}")
        hidden_BL, targets_BL = self.corrupt(batch)
        # The last layer and the head compute these positions alone: 15% of the rows' tokens.
        P = self.predicted(tokens_BL.shape[1], count)
        slots_BP, real_BP = corruption.find_targets(targets_BL, P)
        firsts = [examples.starts_BO] if self.nsp else []
        # A model without a table of positions goes by distances, which packing leaves as they are.
        has_positions = examples.positions_BL is not None and hasattr(self.backbone, "L")
        h_BPD = self.backbone(
            hidden_BL,
            mask=examples.mask,
            segments_BL=batch.get("segments_BL"),
            slots_BP=jnp.concatenate([*firsts, slots_BP], 1),
            train=train,
            **(dict(positions_BL=examples.positions_BL) if has_positions else {}),
        ).h
        ids_BP = jnp.take_along_axis(tokens_BL, slots_BP, axis=1)
        weights_BP = real_BP * batch["weight_B"][:, None]
        return h_BPD[:, :count], h_BPD[:, count * self.nsp :], ids_BP, weights_BP

    def refusal(self) -> str:
        if reason := self.backbone.refusal(Mask()):
            return reason
        width = getattr(self.backbone, "width", self.backbone.D)
        if getattr(self.backbone, "has_separate_directions", False) and width != self.backbone.D:
            return (
                "no state sees both sides of a masked token: those of the directions lie side by "
                "side, and a softmax reads one"
            )
        if self.backbone.is_causal:
            return "it reads from both sides: set model.attention='bi'"
        return refuse_width(self.backbone, self.head)

    def predicted(self, L: int, count: int = 1) -> int:
        """Returns how many of L positions are predicted at most, in rows of `count` examples."""
        most = self.max_predictions or math.ceil(L * self.mask_prob)
        return count_slots(L, self.mask_prob, most, count)

    def flops(self, B: int, L: int) -> float:
        P = self.predicted(L)
        return self.backbone.flops(B, L, P) + self.head.flops(B * P)

    def corrupt(self, batch):
        """Returns the tokens with some of them hidden, and which are predicted: [B, L] each."""
        tokens_BL, valid_BL = batch["tokens_BL"], batch["valid_BL"]
        # BERT predicts [UNK], which is a word of the text, but no other special token.
        never = [name for name in self.special if name != "unk"]
        eligible_BL = valid_BL & ~is_special(tokens_BL, self.special, *never)
        P, examples = self.predicted(tokens_BL.shape[1]), find_examples(batch)
        # As create_pretraining_data.py: a share of the row's length with its special tokens.
        share_BO = jnp.round(examples.sizes_BO * self.mask_prob)
        goal_BO = jnp.clip(share_BO.astype(jnp.int32), 1, P)
        starts_BL = batch["word_starts_BL"] if self.whole_word_mask else jnp.ones_like(valid_BL)
        # A key per row: a row's draws do not depend on how the batch is sharded.
        keys_B = jax.random.split(self.make_rng("corrupt"), len(tokens_BL))
        rows = keys_B, tokens_BL, starts_BL, eligible_BL, goal_BO, examples.number_BL
        return jax.vmap(self._corrupt_row)(*rows)

    def _corrupt_row(self, rng, tokens_L, starts_L, eligible_L, goal_O, number_L):
        pick_rng, mask_rng = jax.random.split(rng)
        unit, odds = 0 if self.whole_word_mask else 1, run_odds(self.max_gram, self.geometric)
        picked_L = corruption.sample_masked_units(
            pick_rng, starts_L, eligible_L, goal_O, odds, unit=unit, part_L=number_L
        )
        hidden_L = corruption.mask_tokens(
            mask_rng,
            tokens_L,
            picked_L,
            mask_id=special_id(self.special, "mask"),
            V=self.backbone.V,
            mask_rate=self.mask_rate,
            random_rate=self.random_rate,
        )
        return hidden_L, picked_L

    def _next_sentence(self, first_BOD, batch, weight_BO):
        is_next_BO = find_next(batch, self.backbone).reshape(weight_BO.shape)
        return self.next_head(self.backbone.pool(first_BOD), is_next_BO, weight_BO)


def find_next(batch, backbone):
    """Returns whether B follows A in each example; refuses what nobody can predict it from."""
    name = "consecutive_BO" if "starts_BO" in batch else "consecutive_B"
    if name not in batch:
        raise UserError(
            "objective.nsp=True needs batches.name='pairs' with next_sentence=True, or 'clicks'"
        )
    if not getattr(backbone, "pooler", False):
        raise UserError("objective.nsp=True needs model.pooler=True")
    return batch[name]


def run_odds(max_gram: int, geometric: float) -> list[float]:
    """Returns the odds of runs of 1, 2, ... units, see `Objective`."""
    lengths = range(1, max_gram + 1)
    if geometric:
        # Odds, not probabilities: their factor `geometric` is the same for all.
        return [(1 - geometric) ** (n - 1) for n in lengths]
    return [1 / n for n in lengths]
