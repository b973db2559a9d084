"""Counts the numbers and the bytes of a train state by its shapes."""

import math
from typing import Any

import jax


def count_numbers(tree: Any) -> int:
    """Counts the numbers of a tree of arrays, or of their shapes."""
    return sum(math.prod(x.shape) for x in jax.tree.leaves(tree))


def count_device_bytes(tree: Any) -> int:
    """Counts the bytes that one device has of a tree of sharded arrays, or of their shapes."""
    return sum(
        math.prod(x.sharding.shard_shape(x.shape)) * x.dtype.itemsize for x in jax.tree.leaves(tree)
    )
