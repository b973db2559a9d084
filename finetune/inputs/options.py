"""Groups rows by example and takes them apart again: options of a question, orders of a pair."""

from typing import Any

GROUPED = {  # a row's arrays, and those of O rows of an example
    "tokens_BL": "tokens_BOL",
    "tokens_BLW": "tokens_BOLW",
    "valid_BL": "valid_BOL",
    "segments_BL": "segments_BOL",
}


def group_options(arrays: dict[str, Any], options: int) -> dict[str, Any]:
    """Groups rows [B * O, ...], O options of each example in turn, as [B, O, ...]."""
    return {GROUPED[name]: x.reshape(-1, options, *x.shape[1:]) for name, x in arrays.items()}


def flatten_options(batch: dict[str, Any]) -> tuple[dict[str, Any], int]:
    """Flattens a batch of O rows an example to one of rows; other arrays stay as they are.

    Returns:
        (the batch, O); O is 1 where examples have one row each.
    """
    single = {grouped: name for name, grouped in GROUPED.items()}
    options = batch["valid_BOL"].shape[1] if "valid_BOL" in batch else 1
    rows = {
        single.get(name, name): x.reshape(-1, *x.shape[2:]) if name in single else x
        for name, x in batch.items()
    }
    return rows, options
