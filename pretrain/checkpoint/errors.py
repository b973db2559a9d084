"""Errors of reading and of writing a checkpoint, each described in one line."""

import contextlib
import errno
import os
import pathlib
from collections.abc import Iterator

from pretrain.runtime.errors import UserError

# The reasons of the system that a user can act on, by the words Orbax wraps.
FULL = tuple(map(os.strerror, (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS)))


class DamagedError(Exception):
    """A checkpoint is not what was saved; the message names the file or the leaf."""


def describe_error(error: BaseException | None) -> str:
    """Describes an error in a line; None stands for an error in another process."""
    if error is None:
        return "another process could not read its part"
    if isinstance(error, DamagedError):
        return str(error)
    while error.__cause__:  # Orbax wraps what the storage layer said
        error = error.__cause__
    text = " ".join(f"{type(error).__name__}: {error}".split())
    # Some errors hold a whole tree of arrays.
    return text if len(text) <= 500 else f"{text[:200]} ... {text[-300:]}"


@contextlib.contextmanager
def report_failure(folder: pathlib.Path) -> Iterator[None]:
    """Turns the errors of Orbax within the block into that of `make_write_error`."""
    try:
        yield
    except (OSError, ValueError) as error:  # a full disk is either, by the layer that met it
        raise make_write_error(folder, error) from error


def make_write_error(folder: pathlib.Path, error: BaseException) -> UserError:
    """Makes the error of a save that failed, in one line; a full disk is called so."""
    why = next((text for text in FULL if text in str(error)), describe_error(error))
    return UserError(f"a checkpoint could not be written in {folder}: {why}")
