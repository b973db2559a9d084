"""Rows nobody wrote, as uneven in length as sentences, with labels that can be learned."""

from typing import Any

import numpy as np

from benchmarks.contest import synthetic_data

MEAN, SHAPE = 20, 5  # words of a row: gamma's, whose deviation of 9 is that of film reviews


def draw_rows(recipe: dict[str, Any]) -> dict[str, np.ndarray]:
    """Draws the examples of a few batches: tokens_BL, valid_BL, padded at their ends, label_B."""
    V, C, seed = recipe["model"]["V"], len(recipe["task"]["labels"]), recipe["seed"]
    B, L = recipe["batches"]["B"] * synthetic_data.BATCHES, recipe["batches"]["L"]
    rng = np.random.default_rng(seed)
    lengths_B = rng.gamma(SHAPE, MEAN / SHAPE, B).round().clip(1, L).astype(int)
    label_B = rng.integers(0, C, B).astype(np.int32)
    tokens_BL = synthetic_data.draw_tokens(V, (B, L), seed)
    # Every fourth word says which class its row is of, so that there is something to learn.
    tokens_BL[:, ::4] = V - 1 - label_B[:, None]
    valid_BL = np.arange(L) < lengths_B[:, None]
    tokens_BL[~valid_BL] = 0
    return dict(tokens_BL=tokens_BL, valid_BL=valid_BL, label_B=label_B)
