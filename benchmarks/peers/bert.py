"""Runs the peers of masked LM: transformers' BERT in PyTorch, as it comes and at its quickest.

    hf        every position goes through the vocabulary's softmax; the default AdamW
    gathered  the same body; only predicted positions reach the head; GELU and AdamW in one
              kernel each; freed memory is kept, as we keep it

Their masks are drawn once, before the clock starts.  So they learn the batches by heart and their
loss falls faster than ours, whose masks are drawn anew in each step.
"""

from typing import Any

import numpy as np
import torch
from torch.nn.functional import cross_entropy
from transformers import BertConfig, BertForMaskedLM, BertForPreTraining

from benchmarks.contest import synthetic_data
from benchmarks.peers import base

IGNORED = -100  # the label of a position that is not predicted
ACTIVATIONS = {"gelu": "gelu_new", "gelu_erf": "gelu", "relu": "relu"}


class Shipped(base.Peer):
    """BertForPreTraining, or BertForMaskedLM where the recipe has no next-sentence task."""

    fused = False

    def network(self, recipe: dict[str, Any]) -> torch.nn.Module:
        config = self.config(**recipe["model"])
        return (BertForPreTraining if recipe["objective"]["nsp"] else BertForMaskedLM)(config)

    def config(
        self,
        *,
        V: int,
        D: int,
        H: int,
        K: int,
        N: int,
        F: int,
        L: int,
        norm: str,
        activation: str,
        dropout: float,
        attention_dropout: float,
        **_: Any,
    ) -> BertConfig:
        """Returns the same network; it always has segments, which cost next to nothing."""
        base.check_heads(D=D, H=H, K=K)
        if norm != "post":
            raise ValueError(f"the peer norms after each layer: norm='post', not {norm!r}")
        return BertConfig(
            vocab_size=V,
            hidden_size=D,
            num_attention_heads=H,
            num_hidden_layers=N,
            intermediate_size=F,
            max_position_embeddings=L,
            hidden_act=ACTIVATIONS[activation],
            hidden_dropout_prob=dropout,
            attention_probs_dropout_prob=attention_dropout,
            pad_token_id=synthetic_data.SPECIAL["pad"],
        )

    def tensors(
        self, recipe: dict[str, Any], batch: dict[str, np.ndarray], seed: int
    ) -> dict[str, np.ndarray]:
        inputs_BL, labels_BL = mask_tokens(batch, share=recipe["objective"]["mask_prob"], seed=seed)
        tensors = {"input_ids": inputs_BL, "labels": labels_BL, "attention_mask": batch["valid_BL"]}
        if "segments_BL" in batch:
            tensors["token_type_ids"] = batch["segments_BL"]
        if recipe["objective"]["nsp"]:
            # transformers counts "is next" as class 0, we as 1.
            tensors["next_sentence_label"] = 1 - batch["consecutive_B"]
        return {name: x.astype(np.int64) for name, x in tensors.items()}

    def losses(self, batch: dict[str, torch.Tensor]) -> list[torch.Tensor]:
        out = self.model(**batch)
        if "next_sentence_label" not in batch:
            return [out.loss]
        nsp = cross_entropy(out.seq_relationship_logits, batch["next_sentence_label"])
        return [out.loss - nsp, nsp]  # the model gives only their sum


class Gathered(Shipped):
    """The same with the head on predicted positions alone, as a careful user writes it."""

    fused = True

    def config(self, **fields: Any) -> BertConfig:
        config = super().config(**fields)
        if config.hidden_act == "gelu_new":
            config.hidden_act = "gelu_pytorch_tanh"  # the same function in one kernel
        return config

    def tensors(
        self, recipe: dict[str, Any], batch: dict[str, np.ndarray], seed: int
    ) -> dict[str, np.ndarray]:
        tensors = super().tensors(recipe, batch, seed)
        # Looked for on the host: a GPU would have to say how many there are.
        return tensors | {"picked_P": np.flatnonzero(tensors["labels"] != IGNORED)}

    def losses(self, batch: dict[str, torch.Tensor]) -> list[torch.Tensor]:
        targets = ("labels", "next_sentence_label", "picked_P")
        out = self.model.bert(**{name: x for name, x in batch.items() if name not in targets})
        # Gathered before the head, whose product with V is the largest of the model.
        h_PD = out.last_hidden_state.flatten(0, 1)[batch["picked_P"]]
        logits_PV = self.model.cls.predictions(h_PD)
        losses = [cross_entropy(logits_PV, batch["labels"].flatten()[batch["picked_P"]])]
        if "next_sentence_label" in batch:
            logits_B2 = self.model.cls.seq_relationship(out.pooler_output)
            losses.append(cross_entropy(logits_B2, batch["next_sentence_label"]))
        return losses


def mask_tokens(
    batch: dict[str, np.ndarray], *, share: float, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Draws inputs and labels: of a share of each row 80% are hidden, 10% exchanged, 10% left."""
    rng, tokens_BL = np.random.default_rng(seed), batch["tokens_BL"]
    ordinary_BL = tokens_BL > max(synthetic_data.SPECIAL.values())
    # Ordinary tokens rank first, in a random order.
    rank_BL = (rng.random(tokens_BL.shape) - ordinary_BL).argsort(1).argsort(1)
    # Special tokens are never masked (Devlin et al. 2018).
    picked_BL = ordinary_BL & (rank_BL < np.ceil(share * batch["valid_BL"].sum(1, keepdims=True)))
    kind_BL, others_BL = rng.random(tokens_BL.shape), rng.permuted(tokens_BL)
    hidden_BL = np.where(kind_BL < 0.8, synthetic_data.SPECIAL["mask"], others_BL)
    inputs_BL = np.where(picked_BL & (kind_BL < 0.9), hidden_BL, tokens_BL)
    return inputs_BL, np.where(picked_BL, tokens_BL, IGNORED)


if __name__ == "__main__":
    base.serve({"hf": Shipped, "gathered": Gathered})
