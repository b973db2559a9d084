"""HDF5 files, as ELMo's lm_weights.hdf5 is: datasets in groups, named "group/group/dataset".

Hardly any file has the checksums that the format allows for: a flipped bit is not noticed.  A
dataset can be made of other files, and a link can lead to them: neither is followed.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import h5py
import numpy as np

from pretrain.formats import Spec
from pretrain.formats.files import INFLATED, Reader, check_plain, drafted, size, taking


def opened(path: str | os.PathLike) -> "File":
    """The datasets of a file.

    Raises:
        UserError: there is no such file, it is broken, or has links or parts in other files.
    """
    return File(path)


class File(Reader):
    """See `pretrain.formats.Arrays`."""

    def _open(self) -> None:
        self._file = self.enter_context(h5py.File(self.path, "r"))
        for name, dataset in _datasets(self._file, set()):
            if dataset.external or dataset.is_virtual:
                raise ValueError(f"{name} is kept in other files")
            if dataset.shape is None:
                self.others[name] = "empty"
            else:
                self._add(name, dataset.shape, dataset.dtype)

    def _read(self, name: str) -> np.ndarray:
        dataset, claimed = self._file[name], size(self.specs[name])
        stored = min(dataset.id.get_storage_size(), self.path.stat().st_size)
        if claimed > INFLATED * stored:
            raise ValueError(f"{name} claims {claimed} bytes, of which {stored} are there")
        return dataset[()]


def _datasets(group: h5py.Group, seen: set[h5py.Group]) -> Iterator[tuple[str, h5py.Dataset]]:
    """All in a group and those within, by their full names.

    Raises:
        ValueError: there are links, or a group is in two places, and so perhaps in itself.
    """
    if group in seen:
        raise ValueError(f"the group {group.name} is in two places")
    seen.add(group)
    for name in group:
        full = f"{group.name.rstrip('/')}/{name}"
        if not isinstance(group.get(name, getlink=True), h5py.HardLink):
            raise ValueError(f"{full} is a link")
        item = group[name]
        if isinstance(item, h5py.Group):
            yield from _datasets(item, seen)
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
    take = taking(specs, arrays)
    with drafted(Path(path)) as draft, h5py.File(draft, "w") as file:
        for name in specs:
            file.create_dataset(name, data=take(name))
