"""Frames the readers and writers of all formats: errors that name the file, and drafts."""

import contextlib
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import numpy as np

from pretrain.formats import Spec
from pretrain.runtime.errors import UserError
from pretrain.runtime.files import create_folder, replace_file

PLAIN = "biufc"  # the kinds of numpy's own numbers
INFLATED = 1100  # bytes of arrays per byte of a file: deflate reaches 1032


class Reader(contextlib.ExitStack):
    """Implements `Arrays` for a format that defines `_open` and `_read`; closes its files."""

    def __init__(self, path: str | os.PathLike):
        """Opens the file and lists its arrays.

        Raises:
            UserError: there is no such file, or it is broken.
        """
        super().__init__()
        self.path = Path(path)
        self.specs: dict[str, Spec] = {}
        self.others: dict[str, str] = {}
        with explain_read_errors(self.path):
            try:
                self._open()
            except BaseException:  # the caller gets no object to close
                self.close()
                raise

    def read(self, name: str) -> np.ndarray:
        """Reads one array, see `Arrays`."""
        spec = self.specs[name]
        with explain_read_errors(self.path):
            return np.asarray(self._read(name), spec.dtype, order="C")

    def _open(self) -> None:
        """Fills `specs` and `others`."""
        raise NotImplementedError

    def _read(self, name: str) -> np.ndarray:
        raise NotImplementedError

    def _add(self, name: str, shape: tuple[int, ...], dtype: np.dtype) -> None:
        if dtype.kind in PLAIN:  # anything else, as objects or strings, holds no weights
            self.specs[name] = Spec(shape, dtype.newbyteorder("="))
        else:
            self.others[name] = str(dtype)


@contextlib.contextmanager
def explain_read_errors(path: Path) -> Iterator[None]:
    """Turns whatever the block raises about a broken file into a UserError of file and fault."""
    try:
        yield
    except UserError:
        raise
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror or error}") from error
    except Exception as error:  # the parsers of broken bytes raise some twenty kinds
        why = str(error) or type(error).__name__
        raise UserError(f"{path}: is broken, or of another format: {why}") from error


@contextlib.contextmanager
def open_draft(path: Path) -> Iterator[Path]:
    """Gives the path of a draft, which takes the name `path` once it is whole and on disk.

    Raises:
        UserError: it cannot be written.
    """
    with explain_write_errors(path):
        create_folder(path.parent)
        # One process writes a release, and large drafts of killed ones are not to pile up.
        with replace_file(path, f".{path.name}.draft") as draft:
            yield draft


@contextlib.contextmanager
def explain_write_errors(path: Path) -> Iterator[None]:
    """Turns an OSError of the block into a UserError: `path` cannot be written, and why."""
    try:
        yield
    except OSError as error:
        raise UserError(f"{path}: cannot be written: {error.strerror or error}") from error


def check_plain(path: Path, specs: Mapping[str, Spec]) -> None:
    """Raises UserError unless all arrays are of numpy's own types, which bfloat16 is not."""
    for name, spec in specs.items():
        if spec.dtype.kind not in PLAIN:
            advice = "make it float32, or write safetensors"
            raise UserError(f"{path}: there is no type for {name}, which is {spec.dtype}: {advice}")


def expect_arrays(
    specs: Mapping[str, Spec], arrays: Iterable[tuple[str, np.ndarray]]
) -> Callable[[str], np.ndarray]:
    """Returns a function that draws the array of a name, the next to come, in C order.

    Raises:
        ValueError: another one comes, or one of another shape or type than its spec.
    """
    source = iter(arrays)  # none is kept: one array at a time is in memory

    def take(name: str) -> np.ndarray:
        actual_name, array = next(source, ("nothing", np.empty(0)))
        if actual_name != name or Spec(array.shape, array.dtype) != specs[name]:
            actual = f"{actual_name}: {array.shape} {array.dtype}"
            raise ValueError(f"{name}: {specs[name]} was to come, not {actual}")
        return np.asarray(array, order="C")

    return take


def count_bytes(spec: Spec) -> int:
    # In Python's integers: a broken header may claim more than 2^64.
    return math.prod(spec.shape) * spec.dtype.itemsize
