"""Arrays to write to files, and damage to the files, for the tests of every format."""

import contextlib
import json
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
    """Draws arrays of several types and ranks, one without an element, with "/" in the names."""
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


SHAPES = [[3, 4], [0, 5], [], [1, 7, 2], [2]]


def write_shards(folder: pathlib.Path) -> None:
    """Writes 29 numbers in three pieces, so that two arrays straddle."""
    for number, piece in enumerate(np.split(np.arange(29, dtype="float32"), [5, 14])):
        np.save(folder / f"params_{number}.npy", piece)
    (folder / "params_shapes.json").write_text(json.dumps(SHAPES))


def bfloat16() -> np.ndarray:
    return np.array([1.5, -2, 3], ml_dtypes.bfloat16)


def specs(arrays) -> dict[str, Spec]:
    return {name: Spec(array.shape, array.dtype) for name, array in arrays.items()}


def content(opened, path) -> dict[str, np.ndarray]:
    with opened(path) as file:
        arrays = {name: file.read(name) for name in file.specs}
        assert specs(arrays) == file.specs
        return arrays


def assert_same(actual, expected) -> None:
    """Asserts that names, types, shapes and bits are equal."""
    assert actual.keys() == expected.keys()
    for name, array in expected.items():
        assert (actual[name].dtype, actual[name].shape) == (array.dtype, array.shape), name
        assert actual[name].tobytes() == array.tobytes(), name
        assert actual[name].flags.c_contiguous


def flipped(data: bytes, place: int, bit: int) -> bytes:
    return data[:place] + bytes([data[place] ^ 1 << bit]) + data[place + 1 :]


def outcome(opened, path) -> dict[str, np.ndarray] | UserError:
    """Reads the arrays, or returns the clear error; any other error fails the test."""
    try:
        return content(opened, path)
    except UserError as error:
        return error


def noticed(opened, path, expected) -> bool:
    """Returns whether reading raises UserError; what is read without one is as expected."""
    result = outcome(opened, path)
    if isinstance(result, UserError):
        assert path.name in str(result) or path.parent.name in str(result)
        return True
    assert_same(result, expected)
    return False


class Evil:
    """Writes a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


@contextlib.contextmanager
def small_disk(size: int):
    """Lets no file grow beyond this many bytes, as if the disk were full."""
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
