"""What the formats share: a reader's frame, one kind of error, and drafts that become files."""

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
INFLATED = 1100  # so many times its size a file may hold: deflate reaches 1032


class Reader(contextlib.ExitStack):
    """The `Arrays` of a format that says how to open and read; closes what it has entered."""

    def __init__(self, path: str | os.PathLike):
        """Raises:
        UserError: there is no such file, or it is broken.
        """
        super().__init__()
        self.path = Path(path)
        self.specs: dict[str, Spec] = {}
        self.others: dict[str, str] = {}
        with reading(self.path):
            try:
                self._open()
            except BaseException:
                self.close()
                raise

    def read(self, name: str) -> np.ndarray:
        """See `Arrays`."""
        spec = self.specs[name]
        with reading(self.path):
            return np.asarray(self._read(name), spec.dtype, order="C")

    def _open(self) -> None:
        """Fills `specs` and `others`."""
        raise NotImplementedError

    def _read(self, name: str) -> np.ndarray:
        """An array of the right shape, in any order of bytes."""
        raise NotImplementedError

    def _add(self, name: str, shape: tuple[int, ...], dtype: np.dtype) -> None:
        if dtype.kind in PLAIN:
            self.specs[name] = Spec(shape, dtype.newbyteorder("="))
        else:
            self.others[name] = str(dtype)


@contextlib.contextmanager
def reading(path: Path) -> Iterator[None]:
    """Around the parsing of a file, whose libraries raise anything at all when it is broken.

    Raises:
        UserError: names the file, beside what was wrong.
    """
    try:
        yield
    except UserError:
        raise
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror or error}") from error
    except Exception as error:
        why = str(error) or type(error).__name__
        raise UserError(f"{path}: is broken, or of another format: {why}") from error


@contextlib.contextmanager
def drafted(path: Path) -> Iterator[Path]:
    """Where to write a file that appears under its own name once it is whole and on disk.

    Raises:
        UserError: it cannot be written.
    """
    with writing(path):
        create_folder(path.parent)
        # One process writes a release, and large drafts of killed ones are not to pile up.
        with replace_file(path, f".{path.name}.draft") as draft:
            yield draft


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Around the writing of a file.

    Raises:
        UserError: it cannot be written, and why.
    """
    try:
        yield
    except OSError as error:
        raise UserError(f"{path}: cannot be written: {error.strerror or error}") from error


def check_plain(path: Path, specs: Mapping[str, Spec]) -> None:
    """Raises:
    UserError: an array is not of numpy's own types, as bfloat16 is not; this file has no other.
    """
    for name, spec in specs.items():
        if spec.dtype.kind not in PLAIN:
            advice = "make it float32, or write safetensors"
            raise UserError(f"{path}: there is no type for {name}, which is {spec.dtype}: {advice}")


def taking(
    specs: Mapping[str, Spec], arrays: Iterable[tuple[str, np.ndarray]]
) -> Callable[[str], np.ndarray]:
    """What gives the next array by its name; it keeps none, so that one at a time is in memory.

    Raises, when called:
        ValueError: the next array is another, or not as its spec says.
    """
    source = iter(arrays)

    def take(name: str) -> np.ndarray:
        given, array = next(source, ("nothing", np.empty(0)))
        if given != name or Spec(array.shape, array.dtype) != specs[name]:
            found = f"{given}: {array.shape} {array.dtype}"
            raise ValueError(f"{name}: {specs[name]} was to come, not {found}")
        return np.asarray(array, order="C")

    return take


def size(spec: Spec) -> int:
    """Bytes of the array; of any size, as Python's integers are."""
    return math.prod(spec.shape) * spec.dtype.itemsize
