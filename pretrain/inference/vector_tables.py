"""Tables of one vector for each sentence: .npy, [sentences, D], and .parquet, with the texts.

An .npy says nothing else; a .parquet has columns "text" and "vector", and in its metadata, as an
HDF5 file in its attributes, "made_from", JSON of all that the vectors depend on.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np

from pretrain.formats.base import open_draft
from pretrain.runtime.errors import UserError

INDEX = "sentence_to_index"  # of an HDF5 file
FIELDS = ("text", "vector")  # of a parquet file
ENDINGS = (".npy", ".parquet")
# Of files that others read as something else than the HDF5 which is written.
FOREIGN = (".csv", ".tsv", ".txt", ".json", ".jsonl", ".npz", ".pt", ".pkl", ".safetensors")

Block = tuple[Sequence[str], np.ndarray]  # texts, and their vectors [texts, D]


class VectorTable(NamedTuple):
    """Vectors of sentences, [N, D], their texts, and what they were made from; None: not said."""

    vectors_ND: np.ndarray
    texts: list[str] | None
    made_from: dict[str, Any] | None


def is_table(path: Path) -> bool:
    """Tells by its ending whether a file holds one vector for each sentence.

    Raises:
        UserError: the ending is that of a file which vectors are not written to.
    """
    if path.suffix in FOREIGN:
        kinds = "out.h5, or one a line, with --pool, to out.npy or out.parquet"
        raise UserError(f"{path}: no vectors are written as {path.suffix}: name {kinds}")
    return path.suffix in ENDINGS


def write_table(
    path: Path, blocks: Iterator[Block], N: int, D: int, made_from: Mapping[str, Any]
) -> None:
    """Writes the vectors of N sentences, block by block; the file is whole or absent.

    Raises:
        UserError: it cannot be written.
    """
    with open_draft(path) as draft:
        if path.suffix == ".npy":
            _write_npy(draft, blocks, (N, D))
        else:
            _write_parquet(draft, blocks, D, made_from)


def _write_npy(path: Path, blocks: Iterator[Block], shape: tuple[int, int]) -> None:
    # Not by a memory map: on a full disk that would end the process.
    with path.open("wb") as file:
        header = dict(descr="<f4", fortran_order=False, shape=shape)
        np.lib.format.write_array_header_1_0(file, header)
        for _, vectors_ND in blocks:
            file.write(np.ascontiguousarray(vectors_ND, "<f4").tobytes())


def _write_parquet(path: Path, blocks: Iterator[Block], D: int, made_from: Mapping) -> None:
    import pyarrow  # slow, and few need it
    from pyarrow import parquet

    vectors = pyarrow.list_(pyarrow.float32(), D)
    schema = pyarrow.schema(zip(FIELDS, (pyarrow.string(), vectors), strict=True))
    schema = schema.with_metadata({"made_from": json.dumps(dict(made_from))})
    with parquet.ParquetWriter(path, schema) as writer:
        for texts, vectors_ND in blocks:
            flat = pyarrow.array(np.ascontiguousarray(vectors_ND, np.float32).reshape(-1))
            columns = [texts, pyarrow.FixedSizeListArray.from_arrays(flat, D)]
            writer.write_table(pyarrow.table(columns, schema))


def read_table(path: Path) -> VectorTable:
    """Reads the vectors of sentences: .npy, .parquet, or the HDF5 of `pretrain.embed --pool`.

    Raises:
        UserError: there is no such file, or it holds something else.
    """
    reader = {".npy": _read_npy, ".parquet": _read_parquet}.get(path.suffix, _read_hdf5)
    try:
        return reader(path)
    except FileNotFoundError as error:
        raise UserError(f"there is no {path}") from error
    except (OSError, ValueError, KeyError) as error:  # pyarrow's are of these, too
        raise UserError(f"{path}: holds no vectors of sentences: {error}") from error


def _read_npy(path: Path) -> VectorTable:
    vectors_ND = np.load(path, mmap_mode="r", allow_pickle=False)
    if vectors_ND.ndim != 2 or vectors_ND.dtype.kind != "f":
        raise ValueError(f"an array of {vectors_ND.dtype}, {vectors_ND.shape}")
    return VectorTable(vectors_ND, None, None)


def _read_parquet(path: Path) -> VectorTable:
    from pyarrow import parquet, types  # slow, and few need it

    table = parquet.read_table(path, columns=list(FIELDS))
    column = table.column("vector").combine_chunks()
    kind = column.type
    is_list = types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
    if not (is_list and types.is_floating(kind.value_type)):
        raise ValueError(f"a column 'vector' of {kind}")
    vectors_ND = np.asarray(column.flatten()).reshape(len(column), -1)
    said = (table.schema.metadata or {}).get(b"made_from")
    return VectorTable(vectors_ND, table.column("text").to_pylist(), said and json.loads(said))


def _read_hdf5(path: Path) -> VectorTable:
    with h5py.File(path) as file:
        # HDF5 lists "10" before "2".
        names = sorted((name for name in file if name.isdigit()), key=int)
        if not names or file[names[0]].ndim != 1:
            raise ValueError("vectors of tokens, or of several layers, or none at all")
        vectors_ND = np.stack([file[name][()] for name in names])
        texts = _read_texts(file, names)
        return VectorTable(vectors_ND, texts, json.loads(file.attrs["made_from"]))


def _read_texts(file: h5py.File, names: Sequence[str]) -> list[str]:
    """Reads the text of each sentence; "" where an older file does not tell which it was."""
    index = {number: text for text, number in json.loads(file[INDEX][0]).items()}
    # Equal sentences have one entry, and the same tokens; of these there may be several texts.
    by_tokens: dict[str, set[str]] = {}
    for number, text in index.items():
        by_tokens.setdefault(file[number].attrs["tokens"], set()).add(text)
    texts = []
    for name in names:
        attributes = file[name].attrs
        alike = by_tokens.get(attributes["tokens"], set())
        known = index.get(name, next(iter(alike)) if len(alike) == 1 else "")
        texts.append(json.loads(attributes["text"]) if "text" in attributes else known)
    return texts
