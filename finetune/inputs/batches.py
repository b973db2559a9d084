"""Examples as batches: arrays in memory, an entry per example, in a new order each epoch."""

import functools
import hashlib
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from pretrain.data.batches import Batch, Shapes, describe_arrays
from pretrain.runtime.errors import UserError


class Examples:
    """A `pretrain.data.batches.BatchLayout` of examples that are arrays already.

    Training reads all examples once an epoch, the last batch of an epoch being completed by the
    next one's first; else they are read once, in their order, and filled up with rows of weight 0.

    Attributes:
        L: positions of an entry, which may be several rows: forms or options of an example.
        size: how many examples there are.
    """

    def __init__(
        self,
        arrays: Mapping[str, np.ndarray],
        *,
        B: int,
        L: int,
        seed: int = 0,
        shuffle: bool = False,
    ):
        """
        Args:
            arrays: by name, as "tokens_BL": the first dimension is the examples.
            L: positions of a row.

        Raises:
            UserError: there are no examples.
        """
        self.arrays, self.B, self.seed, self.shuffle = arrays, B, seed, shuffle
        self.L = L * (arrays["valid_BOL"].shape[1] if "valid_BOL" in arrays else 1)
        self.size = len(next(iter(arrays.values())))
        if not self.size:
            raise UserError("there are no examples")
        self.steps_per_epoch = -(-self.size // B)
        self._draw_order = functools.lru_cache(2)(self._permute)

    def shapes(self) -> Shapes:
        """Returns the arrays of a batch."""
        shapes = {
            name: jax.ShapeDtypeStruct((self.B, *x.shape[1:]), x.dtype)
            for name, x in self.arrays.items()
        }
        return shapes | describe_arrays("weight_B", (self.B,), np.float32)

    def batch(self, step: int, rows: slice = slice(None)) -> Batch:
        """Reads these rows of batch `step`, counted from 0 over all epochs."""
        numbers = np.arange(step * self.B, (step + 1) * self.B)[rows]
        real = numbers < self.size
        if self.shuffle:
            numbers, real = self._shuffle(numbers), np.ones(len(numbers), bool)
        index = np.where(real, numbers, 0)
        batch = {name: x[index] for name, x in self.arrays.items()}
        return batch | {"weight_B": real.astype(np.float32)}

    def _shuffle(self, numbers: np.ndarray) -> np.ndarray:
        epochs, places = np.divmod(numbers, self.size)
        return np.array(
            [self._draw_order(int(e))[p] for e, p in zip(epochs, places, strict=True)], np.int64
        )

    def _permute(self, epoch: int) -> np.ndarray:
        return np.random.default_rng((self.seed, epoch)).permutation(self.size)

    def fingerprint(self) -> dict[str, Any]:
        """Returns, as JSON, everything that a position depends on, to compare on resume."""
        digest = hashlib.sha256()
        for name in sorted(self.arrays):
            digest.update(name.encode() + np.ascontiguousarray(self.arrays[name]).tobytes())
        return dict(
            layout="examples",
            size=self.size,
            B=self.B,
            L=self.L,
            seed=self.seed,
            digest=digest.hexdigest(),
        )
