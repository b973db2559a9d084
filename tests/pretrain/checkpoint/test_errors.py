"""An error of a checkpoint is one line that names its first cause."""

import errno
import os
import pathlib

import pytest

from pretrain.checkpoint.errors import DamagedError, describe_error, make_write_error

FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def wrap(cause: Exception) -> Exception:
    error = ValueError("from the layer above")
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (None, "another process could not read its part"),
        (DamagedError("2 is a link"), "2 is a link"),
        (wrap(KeyError("a\n  b")), r"KeyError: 'a\n b'"),
        (wrap(ValueError("x " * 999)), f"ValueError: {'x ' * 94} ... {' x' * 150}"),
    ],
)
def test_an_error_is_one_line_of_its_first_cause(error, line):
    assert describe_error(error) == line


def test_a_full_disk_is_called_so():
    error = make_write_error(pathlib.Path("run"), ValueError(f"zarr: {FULL.strerror} at x"))
    assert str(error) == f"a checkpoint could not be written in run: {FULL.strerror}"
