"""Reads GPT-1's release: all parameters end to end, cut into ten .npy files, and JSON of shapes.

A folder with params_0.npy, params_1.npy, ..., flat pieces of about one size, and
params_shapes.json, a list of shapes.  The arrays have no names but their numbers, "0", "1", ...
"""

import json
import math
import os
from itertools import accumulate, pairwise

import numpy as np
from numpy.lib import format as npy

from pretrain.formats.base import Reader, explain_read_errors

SHAPES = "params_shapes.json"


def open_arrays(path: str | os.PathLike) -> "Folder":
    """Opens the arrays of such a folder.

    Raises:
        UserError: a file is missing or broken, or the pieces are more or less than the shapes say.
    """
    return Folder(path)


class Folder(Reader):
    """See `pretrain.formats.Arrays`."""

    def _open(self) -> None:
        with explain_read_errors(self.path / SHAPES):
            shapes = _parse_shapes((self.path / SHAPES).read_text(encoding="utf-8"))
        pieces = [self._piece(number) for number in range(self._count())]
        # Only sums and types tell a wrong folder: the format has neither names nor checksums.
        dtypes = {piece.dtype for piece in pieces}
        if len(dtypes) > 1:
            raise ValueError(f"the pieces are of the types {', '.join(map(str, dtypes))}")
        self._pieces = [0, *accumulate(piece.size for piece in pieces)]  # where each begins
        self._arrays = [0, *accumulate(map(math.prod, shapes))]
        if self._pieces[-1] != self._arrays[-1]:
            there, needed = self._pieces[-1], self._arrays[-1]
            raise ValueError(f"{there} numbers are there, but {SHAPES} is about {needed}")
        for number, shape in enumerate(shapes):
            self._add(str(number), shape, *dtypes)

    def _count(self) -> int:
        names = {path.name for path in self.path.glob("params_*.npy")}
        if missing := {f"params_{i}.npy" for i in range(max(len(names), 1))} - names:
            raise ValueError(f"there is no {min(missing)}")
        return len(names)

    def _piece(self, number: int) -> np.ndarray:
        path = self.path / f"params_{number}.npy"
        with explain_read_errors(path):
            piece = npy.open_memmap(path, mode="r")
            if piece.ndim != 1:
                raise ValueError(f"it is of shape {piece.shape}, not flat")
            return piece

    def _read(self, name: str) -> np.ndarray:
        start, stop = self._arrays[int(name) : int(name) + 2]
        # An array may begin in one piece and end in another.
        parts = [
            self._piece(number)[max(start - begin, 0) : stop - begin]
            for number, (begin, end) in enumerate(pairwise(self._pieces))
            if begin < stop and start < end
        ]
        shape, dtype = self.specs[name]
        return np.concatenate([np.empty(0, dtype), *parts]).reshape(shape)


def _parse_shapes(text: str) -> list[tuple[int, ...]]:
    """Parses a list of shapes; raises ValueError if it is none."""
    shapes = [tuple(shape) for shape in json.loads(text)]
    if not all(type(length) is int and length >= 0 for shape in shapes for length in shape):
        raise ValueError("it is no list of shapes")
    return shapes
