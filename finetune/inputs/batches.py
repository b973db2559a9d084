"""Turns examples in memory into batches, in a new order each epoch."""

import functools
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from pretrain.data.batches import Batch, Shapes, describe_arrays, name_arrays
from pretrain.data.batches.row_lengths import choose_length, list_lengths
from pretrain.data.batches.shuffling import shuffle_array
from pretrain.runtime.errors import UserError


class Examples:
    """Reads batches of examples that are arrays already: a `pretrain.data.batches.BatchLayout`.

    Training reads all examples once an epoch; evaluation once, in their order.

    Attributes:
        L: positions of an example, of all its rows: orders of a pair, or options.
        size: number of examples.
    """

    def __init__(
        self,
        arrays: Mapping[str, np.ndarray],
        *,
        B: int,
        L: int,
        seed: int = 0,
        shuffle: bool = False,
        lengths: Sequence[int] = (),
        task: str = "",
    ):
        """
        Args:
            arrays: by name, as "tokens_BL": the first dimension is the examples.
            L: positions of a row.
            lengths: that batches are cut to, where all their rows are as short; a program is
                compiled for each that occurs.  Rows are padded at their end.
            task: whose name the arrays of batches bear; "": there is one task.

        Raises:
            UserError: there are no examples.
        """
        self.arrays, self.B, self.seed, self.shuffle = arrays, B, seed, shuffle
        self.task = task
        self.L = L * (arrays["valid_BOL"].shape[1] if "valid_BOL" in arrays else 1)
        self.size = len(next(iter(arrays.values())))
        self.lengths = list_lengths(lengths, L)
        # The end of an example's longest row; it has as many as it has orders or options.
        valid = next((arrays[x] for x in ("valid_BL", "valid_BOL") if x in arrays), None)
        self._ends = None if valid is None or len(self.lengths) == 1 else find_ends(valid)
        if not self.size:
            raise UserError("there are no examples")
        self.steps_per_epoch = -(-self.size // B)
        # Two, as a batch may span the end of an epoch.
        self._draw_order = functools.lru_cache(2)(self._shuffle_epoch)

    def shapes(self) -> Shapes:
        shapes = {
            name: jax.ShapeDtypeStruct((self.B, *x.shape[1:]), x.dtype)
            for name, x in self.arrays.items()
        }
        return name_arrays(self.task, shapes | describe_arrays("weight_B", (self.B,), np.float32))

    def batch(self, step: int, rows: slice = slice(None)) -> Batch:
        # Training completes the last batch of an epoch with the first examples of the next;
        # evaluation fills it up with rows of weight 0.
        numbers = np.arange(step * self.B, (step + 1) * self.B)
        real = numbers < self.size
        if self.shuffle:
            numbers, real = self._find_examples(numbers), np.ones(len(numbers), bool)
        index = np.where(real, numbers, 0)
        # The longest of all processes' rows decides: every process cuts its own to the same length.
        L = self._find_length(index)
        batch = {name: cut_rows(name, x[index[rows]], L) for name, x in self.arrays.items()}
        return name_arrays(self.task, batch | {"weight_B": real[rows].astype(np.float32)})

    def _find_length(self, index: np.ndarray) -> int:
        if self._ends is None:
            return self.lengths[-1]
        # Padding that all rows of a batch have would cost time.  The length depends on the batch
        # alone, and so on the seed and the step.
        return choose_length(self.lengths, self._ends[index].max())

    def _find_examples(self, numbers: np.ndarray) -> np.ndarray:
        # One order after the other: a batch may span two epochs.
        epochs, places = np.divmod(numbers, self.size)
        return np.array(
            [self._draw_order(int(e))[p] for e, p in zip(epochs, places, strict=True)], np.int64
        )

    def _shuffle_epoch(self, epoch: int) -> np.ndarray:
        return shuffle_array(np.arange(self.size), self.seed, epoch)

    def fingerprint(self) -> dict[str, Any]:
        """Returns as JSON all that batches depend on; a resumed run must have the same."""
        # Texts and labels count, too: a file changed between two lives would go on with others.
        digest = hashlib.sha256()
        for name in sorted(self.arrays):
            digest.update(name.encode() + np.ascontiguousarray(self.arrays[name]).tobytes())
        cut = {"lengths": self.lengths} if len(self.lengths) > 1 else {}
        return dict(
            layout="examples",
            size=self.size,
            B=self.B,
            L=self.L,
            seed=self.seed,
            digest=digest.hexdigest(),
            **cut,
        )


def find_ends(valid: np.ndarray) -> np.ndarray:
    """Returns the number of positions up to the last valid one of any row: [B] of [B, ..., L]."""
    valid_BL = np.any(valid.reshape(len(valid), -1, valid.shape[-1]), 1)
    return valid.shape[-1] - np.argmax(valid_BL[:, ::-1], 1)


def cut_rows(name: str, x: np.ndarray, L: int) -> np.ndarray:
    letters = name.rpartition("_")[2]
    if "L" not in letters:
        return x
    return x[(slice(None),) * letters.index("L") + (slice(L),)]
