"""A disk on which nothing more can be made from some operation on, and what a folder then holds."""

import contextlib
import errno
import hashlib
import os
import pathlib
import sys
from collections.abc import Iterator

import pytest

from pretrain.runtime.errors import UserError

WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT


class Disk:
    """Counts what Python makes below a folder, but for locks, and lets it fail.

    Attributes:
        folder: below which it fails; "": nowhere.
        left: so many files and folders can still be opened to write, made or renamed.
        count: how many have been.
    """

    def __init__(self):
        self.folder, self.left, self.count = "", 0, 0

    def __call__(self, event: str, args: tuple) -> None:
        if not self.folder or event not in ("open", "os.mkdir", "os.rename"):
            return
        if event == "open" and not args[2] & WRITES:
            return
        path = "" if isinstance(args[0], int) else os.fsdecode(args[0])
        if not path.startswith(self.folder) or path.endswith("/lock"):
            return
        self.count += 1
        if self.count > self.left:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), args[0])

    @contextlib.contextmanager
    def failing(self, folder: pathlib.Path, after: int) -> Iterator["Disk"]:
        """Around work below the folder, of whose operations only so many succeed."""
        self.folder, self.left, self.count = str(folder), after, 0
        try:
            yield self
        finally:
            self.folder = ""


FOREVER = 1 << 30  # operations
DISK = Disk()
sys.addaudithook(DISK)  # for good: Python knows no way to remove it


def digests(folder: pathlib.Path) -> dict[str, str]:
    """The sha256 of every file below, where a link leads, and "" for every folder."""
    return {str(path.relative_to(folder)): _digest(path) for path in sorted(folder.rglob("*"))}


def _digest(path: pathlib.Path) -> str:
    if path.is_symlink():
        return os.readlink(path)
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""


def refused(folder, work, after=FOREVER):
    """The line that says why the work failed, or the list; all below the folder is as it was."""
    before = digests(folder)
    with DISK.failing(folder, after), pytest.raises(UserError) as caught:
        work()
    assert digests(folder) == before
    assert all(line.startswith("  ") for line in str(caught.value).splitlines()[1:])
    return " ".join(str(caught.value).split())
