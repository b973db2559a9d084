"""Reads and writes files of named arrays, the form of published weights, one array at a time.

A module per format, none of which knows a model: `open_arrays(path)` returns `Arrays`, a context
manager.  Formats that are written too have

    write(path, specs, arrays)    # arrays: (name, array) pairs in the order of `specs`, drawn
                                  # one at a time; a killed writer leaves no half file

| module | reads | writes | notices a flipped bit |
|---|---|---|---|
| `tensorflow` | V2 checkpoints: BERT, XLNet, GPT-2 | no | yes |
| `safetensors` | safetensors, one file or shards | yes | no |
| `hdf5` | HDF5: ELMo | yes | no |
| `npy_shards` | GPT-1's ten .npy files | no | no |
| `npz` | .npz | yes | yes |

Whatever is wrong with the bytes of a file is a `UserError` that names it.
"""

from types import TracebackType
from typing import NamedTuple, Protocol, Self

import numpy as np


class Spec(NamedTuple):
    """Shape and type of an array; `dtype` is native, bfloat16 is `ml_dtypes.bfloat16`."""

    shape: tuple[int, ...]
    dtype: np.dtype


class Arrays(Protocol):
    """An opened file or folder of named arrays; a context manager.

    Attributes:
        specs: the arrays of numbers by name, in the file's order; read from headers alone.
        others: what else the file holds, and its kind by name; it cannot be read.
    """

    specs: dict[str, Spec]
    others: dict[str, str]

    def read(self, name: str) -> np.ndarray:
        """Reads one array in C order, and verifies it as far as the format allows.

        Raises:
            KeyError: `specs` has no such name.
            UserError: the file is broken here.
        """
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
        /,
    ) -> bool | None: ...
