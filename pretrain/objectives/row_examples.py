"""The examples of a batch's rows: one each, or several one behind the other (`batches.pack`)."""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax.numpy as jnp

from modules.masks import Mask, count_lengths
from modules.metrics import Metrics, Sum


class Examples(NamedTuple):
    """Tells where the examples of each row stand, at most O.

    Attributes:
        mask: an example sees itself.
        starts_BO: their first positions, those of <cls>.
        sizes_BO: their positions; 0: a row has no more.
        number_BL: the example of each position, from 0; O of padding; None: rows have one each.
        positions_BL: positions within the example; None: rows have one each.
    """

    mask: Mask
    starts_BO: Any
    sizes_BO: Any
    number_BL: Any = None
    positions_BL: Any = None


def find_examples(batch: Mapping[str, Any]) -> Examples:
    """Finds the examples in rows that are padded at their end; several where it has `starts_BO`.

    Raises:
        ValueError: a row has text behind its padding.
    """
    valid_BL = batch["valid_BL"]
    lengths_B = count_lengths(valid_BL)
    if "starts_BO" not in batch:
        sizes_BO = lengths_B[:, None]
        return Examples(Mask(lengths_B=lengths_B), jnp.zeros_like(sizes_BO), sizes_BO)
    starts_BO, place_L = batch["starts_BO"], jnp.arange(valid_BL.shape[1])
    examples_O = jnp.arange(starts_BO.shape[1])
    # One behind the other: a position is of the last that has begun.
    has_begun_BOL = starts_BO[..., None] <= place_L
    number_BL = jnp.where(valid_BL, has_begun_BOL.sum(1) - 1, len(examples_O))
    first_BL = jnp.where(has_begun_BOL, starts_BO[..., None], 0).max(1)
    return Examples(
        # Padding is a group of its own, which sees itself: no position sees nothing.
        Mask(groups_BL=number_BL),
        # Behind the row where there is no more: any index that exists will do.
        jnp.minimum(starts_BO, len(place_L) - 1),
        (number_BL[:, None] == examples_O[:, None]).sum(2),
        number_BL,
        place_L - first_BL,
    )


def weigh_examples(batch: Mapping[str, Any], examples: Examples):
    """Returns the weight of each example: its row's, [B, O]; 0 where there is none."""
    return batch["weight_B"][:, None] * (examples.sizes_BO > 0)


def count_examples(batch: Mapping[str, Any], examples: Examples) -> Metrics:
    """Counts the examples of a row, and the share of its positions that is padding."""
    weight_B, valid_BL = batch["weight_B"], batch["valid_BL"]
    rows, padding_B = weight_B.sum(), (~valid_BL).sum(1)
    return {
        "examples": Sum(weigh_examples(batch, examples).sum(), rows, "count"),
        "padding": Sum((padding_B * weight_B).sum(), rows * valid_BL.shape[1], "share"),
    }


def count_slots(L: int, share: float, most: int, count: int = 1) -> int:
    """Returns how many positions of a row are predicted at most.

    Args:
        share: of an example's positions that is predicted: rounded, and one at least.
        most: of an example.
        count: examples of a row, at most.
    """
    if count == 1:
        return most
    # Of three positions one can be predicted, of fewer none: those three may round up most.
    excess = max(0.5, 1 - 3 * share)
    return min(count * most, math.floor(L * share + count * excess))
