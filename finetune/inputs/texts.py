"""Turns examples of texts into rows: one text, a pair, or more of them."""

from collections.abc import Sequence

import numpy as np

from finetune.inputs.options import group_options
from finetune.inputs.rows import Row, RowBuilder


def text_arrays(
    inputs: RowBuilder, examples: Sequence[dict], both: bool = False
) -> tuple[dict[str, np.ndarray], list[str]]:
    """Frames each example's "texts" as a row, and pads the rows.

    Args:
        both: each is read in both orders, two rows: arrays as tokens_BOL, O = 2.

    Returns:
        (arrays, notes of what was cut)
    """
    tokens = inputs.tokens([text for x in examples for text in x["texts"]])
    ends = np.cumsum([len(x["texts"]) for x in examples])
    parts = [list(tokens[e - len(x["texts"]) : e]) for x, e in zip(examples, ends, strict=True)]
    orders = [1, -1] if both else [1]
    rows = [inputs.row(texts[::order]) for texts in parts for order in orders]
    arrays = inputs.arrays(rows)
    return group_options(arrays, 2) if both else arrays, cut_notes(rows, inputs.L)


def cut_notes(rows: Sequence[Row], L: int) -> list[str]:
    """Says how many rows were cut, if any were."""
    cut = sum(row.cut > 0 for row in rows)
    return [f"{cut:,} of {len(rows):,} rows were longer than {L}"] if cut else []
