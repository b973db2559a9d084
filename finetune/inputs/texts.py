"""Frames examples of one text, a pair, or more texts as rows."""

from collections.abc import Sequence

import numpy as np

from finetune.inputs.options import group_options
from finetune.inputs.rows import Row, RowBuilder


def frame_texts(
    inputs: RowBuilder, examples: Sequence[dict], both: bool = False
) -> tuple[dict[str, np.ndarray], list[str]]:
    """Frames each example's "texts" as a row, and pads the rows.

    Args:
        both: each example has two rows, its texts in both orders: tokens_BOL, O = 2.

    Returns:
        (arrays, notes of what was cut)
    """
    tokens = inputs.tokens([text for x in examples for text in x["texts"]])
    ends = np.cumsum([len(x["texts"]) for x in examples])
    parts = [list(tokens[e - len(x["texts"]) : e]) for x, e in zip(examples, ends, strict=True)]
    orders = [1, -1] if both else [1]
    rows = [inputs.row(texts[::order]) for texts in parts for order in orders]
    arrays = inputs.arrays(rows)
    return group_options(arrays, 2) if both else arrays, note_cuts(rows, inputs.L)


def note_cuts(rows: Sequence[Row], L: int) -> list[str]:
    """Returns a note of how many rows were cut, if any were."""
    cut = sum(row.cut > 0 for row in rows)
    return [f"{cut:,} of {len(rows):,} rows were longer than {L}"] if cut else []
