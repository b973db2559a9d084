"""Randomness of data: orders and draws that are functions of a key alone."""

import numpy as np


def make_rng(*key: int) -> np.random.Generator:
    # A function of the key alone: NumPy keeps Philox and SeedSequence as they are.
    return np.random.Generator(np.random.Philox(np.random.SeedSequence(key)))


def shuffle_array(array: np.ndarray, *key: int) -> np.ndarray:
    """Returns the elements in an order that is a function of the key alone."""
    # By sorting, as NumPy may change its `permutation` one day.
    return array[np.argsort(make_rng(*key).random(len(array)), kind="stable")]
