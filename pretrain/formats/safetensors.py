"""Reads and writes safetensors, as on the Hugging Face hub: one file, or shards and an index.

The format is github.com/huggingface/safetensors: the length of the header in eight bytes, the
header in JSON, the arrays.
"""

import contextlib
import json
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from safetensors import safe_open

from pretrain.formats import Spec
from pretrain.formats.base import (
    Reader,
    count_bytes,
    expect_arrays,
    explain_read_errors,
    open_draft,
)
from pretrain.runtime.errors import UserError

ONE, INDEX = "model.safetensors", "model.safetensors.index.json"
PICKLES = (".bin", ".pt", ".pth", ".pkl")
DTYPES = {
    "BOOL": np.dtype(bool),
    "U8": np.dtype("uint8"),
    "I8": np.dtype("int8"),
    "U16": np.dtype("uint16"),
    "I16": np.dtype("int16"),
    "F16": np.dtype("float16"),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "U32": np.dtype("uint32"),
    "I32": np.dtype("int32"),
    "F32": np.dtype("float32"),
    "U64": np.dtype("uint64"),
    "I64": np.dtype("int64"),
    "F64": np.dtype("float64"),
}
NAMES = {dtype: name for name, dtype in DTYPES.items()}


def open_arrays(path: str | os.PathLike) -> "Safetensors":
    """Opens the arrays of a folder, or of one `.safetensors` file.

    Raises:
        UserError: there are none, or only pickles, which are not opened; a file is broken, or the
            index and the shards do not agree.
    """
    return Safetensors(path)


class Safetensors(Reader):
    """See `pretrain.formats.Arrays`."""

    def _open(self) -> None:
        self._files: dict[str, Path] = {}
        for path, promised in _list_files(self.path).items():
            # Files may be links, as they are in the hub's cache.
            # The library says of a file without permission that there is none.
            with (
                explain_read_errors(path),
                path.open("rb"),
                safe_open(path, framework="np") as file,
            ):
                names = file.offset_keys()
                if promised is not None and (wrong := promised ^ set(names)):
                    raise ValueError(f"{INDEX} and the file do not agree on {min(wrong)}")
                for name in names:
                    self._list(name, path, file.get_slice(name))

    def _list(self, name: str, path: Path, tensor: Any) -> None:
        if (kind := tensor.get_dtype()) not in DTYPES:
            self.others[name] = kind
            return
        self._files[name] = path
        self.specs[name] = Spec(tuple(tensor.get_shape()), DTYPES[kind])

    def _read(self, name: str) -> np.ndarray:
        path = self._files[name]
        # Opened anew: a mapping keeps all that was read through it in memory.  The format has no
        # checksum: a flipped bit is not noticed.
        with explain_read_errors(path), safe_open(path, framework="np") as file:
            return file.get_tensor(name)


def _list_files(path: Path) -> dict[Path, set[str] | None]:
    """Lists the files, in order, with the names that the index, if any, promises in each."""
    if path.is_file() and path.suffix == ".safetensors":
        return {path: None}
    if (path / ONE).exists():
        return {path / ONE: None}
    if (path / INDEX).exists():
        return _read_index(path / INDEX)
    _refuse_pickles(sorted(path.glob("*")) if path.is_dir() else [path])
    raise UserError(f"{path}: no {ONE} and no {INDEX} is there")


def _read_index(index: Path) -> dict[Path, set[str] | None]:
    with explain_read_errors(index):
        content = json.loads(index.read_text(encoding="utf-8"))
        places = content.get("weight_map") if isinstance(content, dict) else None
        if not isinstance(places, dict):
            raise UserError(f"{index}: has no weight_map, which says what file an array is in")
        plan: dict[Path, set[str] | None] = {}
        for file in sorted(set(places.values())):
            # It comes from elsewhere, and must not reach what lies outside of the folder.
            if Path(file).name != file or not file.endswith(".safetensors"):
                raise ValueError(f"{file!r} is no name of a shard")
            plan[index.with_name(file)] = {name for name in places if places[name] == file}
        return plan


def _refuse_pickles(paths: list[Path]) -> None:
    pickles = [path for path in paths if path.suffix in PICKLES]
    if pickles:
        raise UserError(
            f"{pickles[0]}: a pickle can run code when it is opened, so it is not read; where "
            "torch is installed, make safetensors of it: safetensors.torch.save_file({name: "
            "x.contiguous().clone() for name, x in torch.load(path, weights_only=True).items()}, "
            f'"{ONE}")'
        )


def write(
    path: str | os.PathLike,
    specs: Mapping[str, Spec],
    arrays: Iterable[tuple[str, np.ndarray]],
    shard_bytes: int = 5 * 10**9,
) -> None:
    """Writes a folder: `model.safetensors`, or shards and an index if that would be too large.

    Args:
        path: the folder.
        specs: the arrays, in the order in which they come.
        arrays: (name, array) pairs, drawn one at a time.
        shard_bytes: bytes of the arrays in a file, unless a single one is larger.

    Raises:
        UserError: the folder holds weights already or cannot be written, or an array is of a
            type that the format does not have.
        ValueError: the arrays are not those of the specs.
    """
    folder, take = Path(path), expect_arrays(specs, arrays)
    _check_writable(folder, specs)
    shards = _split_shards(specs, shard_bytes)
    names = [f"model-{i:05}-of-{len(shards):05}.safetensors" for i in range(1, len(shards) + 1)]
    with contextlib.ExitStack() as drafts:  # files get their names from the last to the first
        if len(shards) == 1:
            names = [ONE]
        else:
            draft = drafts.enter_context(open_draft(folder / INDEX))
            draft.write_text(_format_index(dict(zip(names, shards, strict=True))), encoding="utf-8")
        for name, shard in zip(names, shards, strict=True):
            _write_file(drafts.enter_context(open_draft(folder / name)), shard, take)


def _check_writable(folder: Path, specs: Mapping[str, Spec]) -> None:
    # Before anything is written: the last array of a large model may come much later.
    for name, spec in specs.items():
        if spec.dtype not in NAMES:
            raise UserError(f"{folder}: safetensors have no type for {name}, which is {spec.dtype}")
    for name in (ONE, INDEX):
        if (folder / name).exists():
            raise UserError(f"{folder / name} is there already: delete it, or name another folder")


def _split_shards(specs: Mapping[str, Spec], shard_bytes: int) -> list[dict[str, Spec]]:
    shards, room = [dict[str, Spec]()], shard_bytes
    for name, spec in specs.items():  # an array is in one file, however large
        if count_bytes(spec) > room and shards[-1]:
            shards.append({})
            room = shard_bytes
        shards[-1][name] = spec
        room -= count_bytes(spec)
    return shards


def _format_index(shards: Mapping[str, Mapping[str, Spec]]) -> str:
    total = sum(count_bytes(spec) for shard in shards.values() for spec in shard.values())
    places = {name: file for file, shard in shards.items() for name in shard}
    return json.dumps({"metadata": {"total_size": total}, "weight_map": places}, indent=2) + "\n"


def _write_file(path: Path, specs: Mapping[str, Spec], take: Callable[[str], np.ndarray]) -> None:
    begins, end = dict[str, int](), 0
    # Larger types come first, as torch reads no array from an odd place.
    for name in sorted(specs, key=lambda name: -specs[name].dtype.itemsize):
        begins[name], end = end, end + count_bytes(specs[name])
    header = _format_header(specs, begins)
    with path.open("wb") as file:
        file.write(header)
        for name in specs:  # they come in this order, and are placed by size
            file.seek(len(header) + begins[name])
            file.write(take(name).reshape(-1).view(np.uint8).data)


def _format_header(specs: Mapping[str, Spec], begins: Mapping[str, int]) -> bytes:
    table: dict[str, Any] = {"__metadata__": {"format": "pt"}}  # transformers insists on it
    for name, spec in specs.items():
        place = [begins[name], begins[name] + count_bytes(spec)]
        table[name] = {"dtype": NAMES[spec.dtype], "shape": spec.shape, "data_offsets": place}
    text = json.dumps(table, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # torch maps the arrays, which are to begin at eights
    return len(text).to_bytes(8, "little") + text
