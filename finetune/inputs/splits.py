"""Draws splits of examples that come without: folds to test on in turn, and a development set."""

from collections.abc import Mapping, Sequence

import numpy as np

from pretrain.data.batches.shuffling import shuffle_array
from pretrain.runtime.errors import UserError

Examples = Sequence[dict]


def draw_splits(
    examples: Mapping[str, list[dict]],
    *,
    folds: int = 0,
    fold: int | None = None,
    dev_share: float = 0.0,
    split_seed: int = 0,
) -> dict[str, list[dict]]:
    """Draws the splits that a recipe asks for, each in the order of the examples.

    Args:
        examples: as read, by split.
        folds: so many equal parts are drawn of the training examples, and one is the test set; 0:
            none are.
        fold: the number of that part, from 0; None: the first.
        dev_share: share of what is left to train on that is drawn as the development set.
        split_seed: the same parts are drawn each time.

    Raises:
        UserError: a split that is to be drawn is there already, or would be empty.
    """
    splits, key = dict(examples), [split_seed]
    if folds:
        fold = fold or 0
        if "test" in splits:
            raise UserError(f"data.folds={folds} draws the test set: leave out data.test")
        if not 0 <= fold < folds:
            raise UserError(f"data.fold={fold}: the folds are 0 to {folds - 1}")
        order = shuffle_array(np.arange(len(splits["train"])), split_seed)
        splits["train"], splits["test"] = _take(splits["train"], order[fold::folds], "folds")
        key.append(fold)  # each fold has a development set of its own
    if dev_share:
        if "dev" in splits:
            raise UserError(f"data.dev_share={dev_share} draws the development set: drop data.dev")
        size = len(splits["train"])
        order = shuffle_array(np.arange(size), *key, 1)
        chosen = order[: max(round(dev_share * size), 1)]
        splits["train"], splits["dev"] = _take(splits["train"], chosen, "dev_share")
    return {split: splits[split] for split in ("train", "dev", "test") if split in splits}


def _take(examples: list[dict], numbers: np.ndarray, field: str) -> tuple[list[dict], list[dict]]:
    """Returns (the other examples, those of these numbers)."""
    chosen = set(numbers.tolist())
    if not 0 < len(chosen) < len(examples):
        raise UserError(f"data.{field}: {len(examples)} examples are too few to draw a split of")
    parts: tuple[list[dict], list[dict]] = ([], [])
    for number, example in enumerate(examples):
        parts[number in chosen].append(example)
    return parts
