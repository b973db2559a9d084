"""Arrays to be kept in files, and what every format has to do with them."""

import contextlib
import pathlib
import resource
import signal

import ml_dtypes
import numpy as np

from pretrain.formats import Spec
from pretrain.runtime.errors import UserError

ROOT = pathlib.Path(__file__).parents[2]
PUBLISHED = ROOT.parent / "shared" / "fixtures" / "published"


def arrays() -> dict[str, np.ndarray]:
    """Of several types and ranks, one without an element, with "/" in the names."""
    rng = np.random.default_rng(0)
    return {
        "model/w": rng.normal(size=(5, 3)).astype("float32"),
        "model/layer_0/b": np.arange(4, dtype="float64") / 3,
        "step": np.array(7, "int64"),
        "model/none": np.zeros((0, 3), "float32"),
        "flag": np.array([True, False]),
        "half": np.array([1.5, -2], "float16"),
        "byte": np.arange(3, dtype="uint8"),
        "a": np.arange(24, dtype="int32").reshape(2, 3, 4),
    }


def bfloat16() -> np.ndarray:
    return np.array([1.5, -2, 3], ml_dtypes.bfloat16)


def specs(arrays) -> dict[str, Spec]:
    return {name: Spec(array.shape, array.dtype) for name, array in arrays.items()}


def content(opened, path) -> dict[str, np.ndarray]:
    with opened(path) as file:
        found = {name: file.read(name) for name in file.specs}
        assert specs(found) == file.specs
        return found


def assert_same(found, expected) -> None:
    """Equal in names, types, shapes and bits."""
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape), name
        assert found[name].tobytes() == array.tobytes(), name
        assert found[name].flags.c_contiguous


def flipped(data: bytes, place: int, bit: int) -> bytes:
    return data[:place] + bytes([data[place] ^ 1 << bit]) + data[place + 1 :]


def outcome(opened, path) -> dict[str, np.ndarray] | UserError:
    """What reading this gives: the arrays, or a clear error; any other error fails the test."""
    try:
        return content(opened, path)
    except UserError as error:
        return error


def noticed(opened, path, expected) -> bool:
    """Whether it is a UserError to read this; what is read without one is as expected."""
    found = outcome(opened, path)
    if isinstance(found, UserError):
        assert path.name in str(found) or path.parent.name in str(found)
        return True
    assert_same(found, expected)
    return False


class Evil:
    """Writes a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


@contextlib.contextmanager
def small_disk(size: int):
    """Around writing: no file grows beyond this many bytes, as if the disk were full."""
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
