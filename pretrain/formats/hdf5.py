"""Reads and writes HDF5, as ELMo's lm_weights.hdf5: datasets named "group/group/dataset"."""

import contextlib
import io
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import h5py
import numpy as np

from pretrain.formats import Spec
from pretrain.formats.base import (
    INFLATED,
    Reader,
    check_plain,
    count_bytes,
    expect_arrays,
    open_draft,
)


def open_arrays(path: str | os.PathLike) -> "File":
    """Opens the datasets of a file.

    Raises:
        UserError: there is no such file, it is broken, or has links or parts in other files.
    """
    return File(path)


class File(Reader):
    """See `pretrain.formats.Arrays`."""

    def _open(self) -> None:
        self._file = self.enter_context(h5py.File(self.path, "r"))
        for name, dataset in _walk_datasets(self._file, set()):
            # Either could read any file of this machine into the weights.
            if dataset.external or dataset.is_virtual:
                raise ValueError(f"{name} is kept in other files")
            if dataset.shape is None:
                self.others[name] = "empty"
            else:
                self._add(name, dataset.shape, dataset.dtype)

    def _read(self, name: str) -> np.ndarray:
        dataset, claimed = self._file[name], count_bytes(self.specs[name])
        # Before it is allocated: a broken header may claim terabytes.
        stored = min(dataset.id.get_storage_size(), self.path.stat().st_size)
        if claimed > INFLATED * stored:
            raise ValueError(f"{name} claims {claimed} bytes, of which {stored} are there")
        # Hardly any file has the checksums that the format allows for: a flipped bit is unseen.
        return dataset[()]


def _walk_datasets(
    group: h5py.Group, visited: set[h5py.Group]
) -> Iterator[tuple[str, h5py.Dataset]]:
    """Yields (full name, dataset) of all in a group and the groups within."""
    # In two places, and so perhaps in itself.
    if group in visited:
        raise ValueError(f"the group {group.name} is in two places")
    visited.add(group)
    for name in group:
        full = f"{group.name.rstrip('/')}/{name}"
        # A soft link may lead nowhere or up, an external one to any file.
        if not isinstance(group.get(name, getlink=True), h5py.HardLink):
            raise ValueError(f"{full} is a link")
        item = group[name]
        if isinstance(item, h5py.Group):
            yield from _walk_datasets(item, visited)
        elif isinstance(item, h5py.Dataset):
            yield full[1:], item


def write(
    path: str | os.PathLike, specs: Mapping[str, Spec], arrays: Iterable[tuple[str, np.ndarray]]
) -> None:
    """Writes a file, or replaces it; each "/" in a name makes a group.

    Raises:
        UserError: it cannot be written, or has no type for an array.
        ValueError: the arrays are not those of the specs.
    """
    check_plain(Path(path), specs)
    take = expect_arrays(specs, arrays)
    with create_file(Path(path)) as file:
        for name in specs:
            file.create_dataset(name, data=take(name))


@contextlib.contextmanager
def create_file(path: Path) -> Iterator[h5py.File]:
    """Gives a new file to write to, which takes its name once it is whole and on disk.

    Raises:
        UserError: it cannot be written.
    """
    # If HDF5 cannot write the last of a file, it cannot close it, and the closing of a later file
    # may end the process.  So `_Disk` hides a full disk from it, and the error is raised here.
    with open_draft(path) as draft, _Disk(draft) as disk:
        try:
            with h5py.File(disk, "w") as file:
                yield file
        finally:
            if disk.error is not None:
                raise disk.error


class _Disk(io.FileIO):
    """A file that pretends to take whatever is written.

    Attributes:
        error: the first error, if there was one.
    """

    def __init__(self, path: Path):
        super().__init__(path, "w+")
        self.error: OSError | None = None

    def write(self, data) -> int:
        left = memoryview(data).cast("B")
        size = len(left)
        try:
            while left and self.error is None:
                left = left[super().write(left) :]
        except OSError as error:
            self.error = error
        return size

    def truncate(self, size: int | None = None) -> int:
        try:
            return super().truncate(size)
        except OSError as error:
            self.error = self.error or error
            return self.tell() if size is None else size
