"""Reads and writes NumPy's .npz: a zip file with a .npy file for each array."""

import os
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO

import numpy as np
from numpy.lib import format as npy

from pretrain.formats import Spec
from pretrain.formats.base import (
    INFLATED,
    Reader,
    check_plain,
    count_bytes,
    expect_arrays,
    open_draft,
)

END = ".npy"
HEADERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}


def open_arrays(path: str | os.PathLike) -> "File":
    """Opens the arrays of a file; objects in it, which would be pickles, are not read.

    Raises:
        UserError: there is no such file, or it is broken.
    """
    return File(path)


class File(Reader):
    """See `pretrain.formats.Arrays`; the zip file's checksum is compared when an array is read."""

    def _open(self) -> None:
        self._zip = self.enter_context(zipfile.ZipFile(self.path))
        infos = self._zip.infolist()
        # No checksum is kept of the directory: a lost bit can end it, or hide a part in a comment.
        if not infos or any(info.comment for info in infos):
            raise ValueError("it holds nothing, or comments that NumPy does not write")
        for info in infos:
            with self._zip.open(info) as file:
                self._list(info, file)

    def _list(self, info: zipfile.ZipInfo, file: IO[bytes]) -> None:
        if not info.filename.endswith(END):
            self.others[info.filename] = "no array"
            return
        name = info.filename.removesuffix(END)
        if name in self.specs:  # zip allows it, and which one is meant is anybody's guess
            raise ValueError(f"{name} is there twice")
        shape, _, dtype = HEADERS[npy.read_magic(file)](file)
        self._add(name, shape, dtype)
        if name in self.specs and file.tell() + count_bytes(self.specs[name]) != info.file_size:
            raise ValueError(f"{name} of shape {shape} has {info.file_size} bytes")
        # Before it is allocated: a few bytes of zip may claim terabytes.
        if info.file_size > INFLATED * min(info.compress_size, self.path.stat().st_size):
            raise ValueError(f"{name} claims {info.file_size} bytes")

    def _read(self, name: str) -> np.ndarray:
        with self._zip.open(name + END) as file:
            array = npy.read_array(file, allow_pickle=False)
            file.read(1)  # zipfile compares the checksum where the file ends
            return array


def write(
    path: str | os.PathLike, specs: Mapping[str, Spec], arrays: Iterable[tuple[str, np.ndarray]]
) -> None:
    """Writes a file, or replaces it, uncompressed; the same arrays give the same bytes.

    Raises:
        UserError: it cannot be written, or has no type for an array.
        ValueError: the arrays are not those of the specs.
    """
    check_plain(Path(path), specs)
    take = expect_arrays(specs, arrays)
    with open_draft(Path(path)) as draft, zipfile.ZipFile(draft, "w") as archive:
        for name in specs:
            # Without a time of change, so that the same arrays give the same bytes.
            with archive.open(zipfile.ZipInfo(name + END), "w", force_zip64=True) as file:
                npy.write_array(file, take(name), allow_pickle=False)
