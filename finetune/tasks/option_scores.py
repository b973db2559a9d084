"""Scores the options of an example, each read in a row of its own."""

import jax.numpy as jnp

from finetune.inputs.options import flatten_options
from modules.heads.classifier import Classifier


def score_options(encoder, head: Classifier, batch, *, train: bool):
    """Scores the options of each example.

    Returns:
        (scores [B, O], where none that is not there can win; states of the rows; the rows, each
        weighed by its own)
    """
    rows, options = flatten_options(batch)
    h_BLD = encoder(rows, train=train)
    rows |= {"weight_B": weigh_rows(batch)}
    logits_B1 = head(h_BLD, rows["valid_BL"], weight_B=rows["weight_B"], train=train)
    return mask_missing(logits_B1.reshape(-1, options), batch), h_BLD, rows


def weigh_rows(batch):
    """Weighs each option's row as its example, by 0 where there is no option: [B * O]."""
    # A language model that is trained along learns from no repetition.
    return (batch["weight_B"][:, None] * batch["there_BO"]).reshape(-1)


def mask_missing(logits_BO, batch):
    """Scores the options that are not there so low that none can win."""
    # Not -inf, under which the softmax of a filler row without options would be NaN.
    return jnp.where(batch["there_BO"], logits_BO, jnp.finfo(logits_BO.dtype).min)
