"""Reads TensorFlow's V2 checkpoints without TensorFlow: `<prefix>.index` and its data files.

The index is a LevelDB table of protocol buffers, tensorflow/core/protobuf/tensor_bundle.proto: a
header under the empty key, then under each variable's name where its bytes are, and their masked
CRC-32C.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import ml_dtypes
import numpy as np

from pretrain.formats import Spec, leveldb
from pretrain.formats.base import Reader, count_bytes, explain_read_errors
from pretrain.formats.protobuf import parse_fields
from pretrain.runtime.errors import UserError

DTYPES = {  # tensorflow/core/framework/types.proto
    1: "float32",
    2: "float64",
    3: "int32",
    4: "uint8",
    5: "int16",
    6: "int8",
    8: "complex64",
    9: "int64",
    10: "bool",
    14: ml_dtypes.bfloat16,
    17: "uint16",
    18: "complex128",
    19: "float16",
    22: "uint32",
    23: "uint64",
}
OTHERS = {7: "string", 20: "resource", 21: "variant"}
Extent = tuple[int, int]  # of a slice on an axis: where it starts, and its length, or -1 for all
Range = tuple[int, int]  # where it starts and stops


class Entry(NamedTuple):
    """A BundleEntryProto; one that has slices has nothing else but dtype and shape."""

    dtype: int
    shape: tuple[int, ...]
    shard: int
    offset: int
    size: int
    crc: int
    slices: list[tuple[Extent, ...]]

    @property
    def spec(self) -> Spec:
        return Spec(self.shape, np.dtype(DTYPES[self.dtype]))


class Piece(NamedTuple):
    """A part of a variable, and where in it that belongs; no ranges: it is all of it."""

    ranges: tuple[Range, ...]
    entry: Entry


def open_arrays(path: str | os.PathLike) -> "Checkpoint":
    """Opens the checkpoint with this prefix or `.index` file, or the one in this folder.

    Raises:
        UserError: there is none, or the folder has several; the index is broken, or a data file
            is missing or too short.
    """
    return Checkpoint(_find_index(Path(path)))


class Checkpoint(Reader):
    """See `pretrain.formats.Arrays`; a variable's checksum is compared when it is read."""

    def _open(self) -> None:
        table = leveldb.parse_table(self.path.read_bytes())
        if b"" not in table:
            raise ValueError("it has no header")
        self._shards = _count_shards(table.pop(b""))
        self._pieces: dict[str, list[Piece]] = {}  # by variable
        entries = {key: _parse_entry(value) for key, value in table.items()}
        # A partitioned variable, as large ones of bilm-tf can be, lists its slices, which are
        # entries of their own; it is read as one array.
        parts = {
            encode_slice_key(name, slice_) for name in entries for slice_ in entries[name].slices
        }
        for key, entry in entries.items():
            if key not in parts:
                self._list(key.decode(), entry, entries)

    def _list(self, name: str, entry: Entry, entries: Mapping[bytes, Entry]) -> None:
        if entry.dtype not in DTYPES:
            self.others[name] = OTHERS.get(entry.dtype, f"DataType {entry.dtype}")
            return
        self.specs[name] = entry.spec  # of the whole, however it was partitioned
        self._pieces[name] = _find_pieces(name, entry, entries)
        for piece in self._pieces[name]:
            self._check(name, piece.entry)

    def _check(self, name: str, entry: Entry) -> None:
        """Raises ValueError unless the data file has as many bytes as the shape needs."""
        if entry.size != count_bytes(entry.spec):
            raise ValueError(f"{name} has {entry.size} bytes for {entry.spec}")
        path = self._data_file(entry)
        with explain_read_errors(path):
            if entry.offset + entry.size > path.stat().st_size:
                raise ValueError(f"it ends before {name} does")

    def _data_file(self, entry: Entry) -> Path:
        if entry.shard >= self._shards:
            raise ValueError(f"there is no data file {entry.shard} of {self._shards}")
        name = f"{self.path.stem}.data-{entry.shard:05}-of-{self._shards:05}"
        return self.path.with_name(name)

    def _read(self, name: str) -> np.ndarray:
        pieces = self._pieces[name]
        if len(pieces) == 1:  # no copy
            return self._data(name, pieces[0].entry)
        whole = np.empty(*self.specs[name])
        for ranges, entry in pieces:
            whole[tuple(slice(*part) for part in ranges)] = self._data(name, entry)
        return whole

    def _data(self, name: str, entry: Entry) -> np.ndarray:
        path = self._data_file(entry)
        with explain_read_errors(path):
            data = np.fromfile(path, np.uint8, entry.size, offset=entry.offset)
            # Before the bytes become numbers: any bits are numbers.
            if leveldb.compute_masked_crc(data) != entry.crc:
                raise ValueError(f"{name} does not have its checksum")
            return data.view(entry.spec.dtype).reshape(entry.shape)


def _find_index(path: Path) -> Path:
    if path.is_dir():
        return _find_index_within(path)
    index = path if path.suffix == ".index" else path.with_name(f"{path.name}.index")
    if not index.exists():
        raise UserError(f"{path}: no TensorFlow V2 checkpoint: there is no {index.name}")
    return index


def _find_index_within(folder: Path) -> Path:
    """Finds the index that the file `checkpoint` names, else the only one in the folder."""
    with explain_read_errors(folder):
        state = folder / "checkpoint"
        text = state.read_text() if state.exists() else ""
        indices = sorted(folder.glob("*.index"))
    # By its last part alone: the folder may have been elsewhere when the file was written.
    named = re.search(r'^model_checkpoint_path: "(?:.*/)?(.+)"$', text, re.MULTILINE)
    if named and (index := folder / f"{named[1]}.index") in indices:
        return index
    if len(indices) == 1:
        return indices[0]
    several = f"several, name one: {', '.join(path.stem for path in indices)}"
    raise UserError(f"{folder}: {several if indices else 'no TensorFlow V2 checkpoint is there'}")


def _count_shards(header: bytes) -> int:
    if _parse_last(header, 2):  # its byte order
        raise ValueError("it was written on a big-endian machine, which is not supported")
    # Newer writers say what a reader must know at least.
    if (needed := _parse_last(_parse_last(header, 3, b""), 2)) > 1:
        raise ValueError(f"only readers of version {needed} of the format understand it")
    return _parse_last(header, 1)


def _parse_entry(message: bytes) -> Entry:
    shape = parse_fields(_parse_last(message, 2, b""))
    if 3 in shape:  # unknown_rank
        raise ValueError("a variable of unknown rank")
    return Entry(  # by the field numbers of BundleEntryProto
        dtype=_parse_last(message, 1),
        shape=tuple(_parse_last(axis, 1) for axis in shape.get(2, [])),
        shard=_parse_last(message, 3),
        offset=_parse_last(message, 4),
        size=_parse_last(message, 5),
        crc=_parse_last(message, 6),
        slices=[_parse_extents(slice_) for slice_ in parse_fields(message).get(7, [])],
    )


def _parse_extents(message: bytes) -> tuple[Extent, ...]:
    """Parses a TensorSliceProto: an extent for each axis."""
    return tuple(
        (_parse_last(axis, 1), _parse_last(axis, 2, -1))
        for axis in parse_fields(message).get(1, [])
    )


def _parse_last(message: bytes, field: int, default=0):
    """Returns the value of a field that should be there once at most."""
    # If there are several, the last counts, by the rules of protocol buffers.
    return parse_fields(message).get(field, [default])[-1]


def _find_pieces(name: str, entry: Entry, entries: Mapping[bytes, Entry]) -> list[Piece]:
    """Finds the pieces that make up a variable; ValueError unless they do."""
    if not entry.slices:
        return [Piece((), entry)]
    pieces = []
    for extents in entry.slices:
        ranges = _locate(extents, entry.shape)
        part = entries.get(encode_slice_key(name.encode(), extents))
        shape = tuple(stop - start for start, stop in ranges)
        if part is None or part.slices or (part.dtype, part.shape) != (entry.dtype, shape):
            raise ValueError(f"{name} is partitioned, and its part {extents} is not there")
        pieces.append(Piece(ranges, part))
    # They overlap, leave something out, or cut more than one axis.
    if not _fills(entry.shape, [piece.ranges for piece in pieces]):
        raise ValueError(f"{name} is partitioned into parts that do not lie side by side")
    return pieces


def _locate(extents: tuple[Extent, ...], shape: tuple[int, ...]) -> tuple[Range, ...]:
    return tuple(
        (0, whole) if length < 0 else (start, start + length)
        for (start, length), whole in zip(extents, shape, strict=True)
    )


def _fills(shape: tuple[int, ...], parts: list[tuple[Range, ...]]) -> bool:
    """Returns whether the parts, side by side along one axis, fill the shape."""
    whole = tuple((0, length) for length in shape)
    for axis, length in enumerate(shape):
        cuts = sorted(part[axis] for part in parts)
        joined = [*(start for start, _ in cuts), length] == [0, *(stop for _, stop in cuts)]
        if joined and all(_drop_axis(part, axis) == _drop_axis(whole, axis) for part in parts):
            return True
    return False


def _drop_axis(ranges: tuple[Range, ...], axis: int) -> tuple[Range, ...]:
    return ranges[:axis] + ranges[axis + 1 :]


def encode_slice_key(name: bytes, extents: tuple[Extent, ...]) -> bytes:
    """Builds the key of a slice as EncodeTensorNameSlice does, of numbers in OrderedCode."""
    numbers = b"".join(encode_ordered(number) for extent in extents for number in extent)
    return b"\0" + name.replace(b"\0", b"\0\xff") + b"\0\1" + bytes([1, len(extents)]) + numbers


def encode_ordered(number: int) -> bytes:
    """Encodes a number from -1 in OrderedCode, so that bytes sort as numbers do."""
    # As many bits set as there are bytes, one clear, then the number.
    if number < 0:
        return b"\x7f"
    count = number.bit_length() // 7 + 1
    return (((1 << count) - 1 << 7 * count) | number).to_bytes(count, "big")
