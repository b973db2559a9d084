"""Files that are whole or absent, even where a process is killed or a machine loses power."""

import contextlib
import errno
import hashlib
import itertools
import os
import pathlib
import socket
from collections.abc import Iterator

PathLike = str | os.PathLike
PRIVATE = 0o600  # for the owner alone


def create_folder(folder: pathlib.Path) -> None:
    """Creates a folder and those above it, unless they exist.

    Raises:
        OSError: a file stands in its place, or the folder cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError as error:  # to say that the file exists would help nobody
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR)) from error


def beside(path: pathlib.Path, ending: str) -> pathlib.Path:
    """Returns the path beside another one whose name goes on with an ending."""
    # Not as a suffix: a dot of the name would begin one, and what follows it would be lost.
    return path.with_name(path.name + ending)


@contextlib.contextmanager
def replace_file(path: PathLike, draft_name: str = "") -> Iterator[pathlib.Path]:
    """Gives the path of a draft, which takes the place of `path` when the block ends.

    A reader finds the old file or the new one.  If the block raises, the draft is deleted.  A
    link called `path` is replaced; its target stays.

    Args:
        path: its folder exists.
        draft_name: a fixed name, where only one process writes and a killed one's draft is to be
            overwritten; by default the name is this process's own.

    Raises:
        OSError: the file cannot be written.
    """
    path = pathlib.Path(path)
    # The host is in the name since processes of several may share the folder.
    own_name = f".{path.name}.{socket.gethostname()}-{os.getpid()}.tmp"
    draft = path.with_name(draft_name or own_name)
    draft.unlink(missing_ok=True)  # it may be a link
    try:
        yield draft
        sync_file(draft)  # before the rename: else a lost machine may keep the name alone
        os.replace(draft, path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def write_file(path: PathLike, content: bytes, *, private: bool = False) -> None:
    """Writes a file by `replace_file`, and creates its folder.

    Args:
        private: nobody else may read the file, as where it may hold addresses.
    """
    create_folder(pathlib.Path(path).parent)
    with (
        replace_file(path) as draft,
        open(draft, "xb", opener=open_private if private else None) as file,
    ):
        file.write(content)


def rename_folder(draft: PathLike, folder: PathLike) -> None:
    os.rename(draft, folder)
    sync_folder(pathlib.Path(folder).parent)


def sync_file(path: PathLike) -> None:
    with open(path, "rb") as file:
        os.fsync(file.fileno())


def sync_folder(folder: PathLike) -> None:
    """Waits until the names in `folder` are on disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    with contextlib.suppress(OSError):  # not every file system can sync a folder
        os.fsync(descriptor)
    os.close(descriptor)


def sync_tree(folder: pathlib.Path) -> None:
    for place, _, names in os.walk(folder):
        for name in names:
            sync_file(os.path.join(place, name))
        sync_folder(place)


def hash_file(path: pathlib.Path) -> str:
    """Returns the sha256 of a file's content, in hexadecimal digits.

    Args:
        path: a Path, or a path of fsspec with the same methods.
    """
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def open_private(path: str, flags: int) -> int:
    """Opens a file that its owner alone can read; an `opener` for `open`."""
    return os.open(path, flags, PRIVATE)


def find_unused_path(path: pathlib.Path) -> pathlib.Path:
    """Returns `path`, or the first of path-1, path-2, ... that does not exist."""
    numbered = (path.with_name(f"{path.name}-{n}") for n in itertools.count(1))
    # A link that points nowhere would be written through, so it counts as existing.
    return next(x for x in itertools.chain([path], numbered) if not os.path.lexists(x))
