"""Reads the arrays that a job for PyTorch is described with."""

import numpy as np


def read_splits(path: str) -> dict[str, dict[str, np.ndarray]]:
    """Reads an .npz whose arrays are named "dev/label_B": arrays by split, "" of those without."""
    splits: dict[str, dict[str, np.ndarray]] = {}
    with np.load(path) as arrays:
        for name in arrays:
            split, _, field = name.rpartition("/")
            splits.setdefault(split, {})[field] = arrays[name]
    return splits
