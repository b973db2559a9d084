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
    there_BO = batch["there_BO"]
    # Each option weighs as its example: a language model trained along learns from no repetition.
    real_B = (batch["weight_B"][:, None] * there_BO).reshape(-1)
    logits_B1 = head(h_BLD, rows["valid_BL"], weight_B=real_B, train=train)
    # Not -inf, under which the softmax of a filler row without options would be NaN.
    lowest = jnp.finfo(logits_B1.dtype).min
    logits_BO = jnp.where(there_BO, logits_B1.reshape(-1, options), lowest)
    return logits_BO, h_BLD, rows | {"weight_B": real_B}
