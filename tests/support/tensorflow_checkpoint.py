"""Checkpoints for the tests: one by TensorFlow itself, and a writer that also makes wrong ones.

The writer follows the format's documentation, and shares nothing with the reader.
"""

import base64
import struct
from pathlib import Path

import ml_dtypes
import numpy as np

# Written by TensorFlow 2.21: two SaveV2 of slices and whole tensors, and MergeV2Checkpoints.
WRITTEN = {
    "index": (
        "AAAGCAIaAggBAAwVAGNvbAABAQKAhICBCAESCBICCAQSAggBICwoEDVD+TKhCgIXgYIIARIIEgIIBBICCAIYASA/"
        "KCA1N90hxQEJE3cAAQECgIOAfwgBEggSAggDEgIIAygkNTBR0CEGBBWDgYB/CAESCBICCAESAggDGAEoDDVe4PLI"
        "AAERYggOEgQSAggCICgoBDUuSlbyAQMTb29sCAoSBBICCAIYASA9KAI1X7DOgQADImNvbAgBEggSAggEEgIIAzoI"
        "CgIQBAoCEAE6CgoCEAQKBAgBEAIAARFmCAESBhICCAISACAsNdjqgqIAARNzCAcSBBICCAIYASA0KAk11TDYXwAB"
        "HncIARIIEgIIBBICCAM6BgoCEAMKADoICgQIAxABCgAAAQ14CAESACAkKAQ1EP14TwABE3kICRIEEgIIBRgBIAwo"
        "KDW2OU2PAAAAAAEAAAAAAJYEgAAAAAABAAAAAMDyobAAAQN6ANgCAAAAAAEAAAAAZ+PwG90CCOoCDwAAAAAAAAAA"
        "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAABX+4CLJHVH2w=="
    ),
    "data-00000-of-00002": (
        "AAAAAAAAgD8AAABAAABAQAAAgEAAAKBAAADAQAAA4EAAAABBAAAAQMA/AMAAAAAAAABAQAAAwEAAABBB"
    ),
    "data-00001-of-00002": (
        "AAAQQQAAIEEAADBBAAAAAAAAAAABAAAAAAAAAAIAAAAAAAAAAwAAAAAAAAAEAAAAAAAAAAIBA3F8Z2FiYwEAAACA"
        "PwAAAEAAAIBAAACgQAAA4EAAAABBAAAgQQAAMEE="
    ),
}
GRID = np.arange(12, dtype="float32").reshape(4, 3)
HELD = {  # what it was asked to write; w was cut along its first axis, col along its second
    "b": np.array([1.5, -2], ml_dtypes.bfloat16),
    "bool": np.array([True, False]),
    "col": GRID,
    "f": np.zeros((2, 0), "float32"),
    "w": GRID,
    "x": np.array(2, "float32"),
    "y": np.arange(5),
}
KINDS = {"float32": 1, "float64": 2, "int32": 3, "uint8": 4, "int64": 9, "bfloat16": 14}


def write(folder: Path) -> None:
    """Writes TensorFlow's checkpoint as `model.ckpt`."""
    for suffix, text in WRITTEN.items():
        (folder / f"model.ckpt.{suffix}").write_bytes(base64.b64decode(text))


def unused(name: str, size: int) -> set[int]:
    """Returns the bytes of a file of that checkpoint that no array of numbers depends on."""
    if name.endswith("index"):
        return set(range(size - 48 + 6, size - 8))  # padding behind the footer's two handles
    return set(range(52, 61)) if "data-00001" in name else set()  # strings


def number(value: int) -> bytes:
    more = [value >> 7 * i & 0x7F for i in range(max(1, -(-value.bit_length() // 7)))]
    return bytes(byte | 0x80 for byte in more[:-1]) + bytes(more[-1:])


def message(*fields) -> bytes:
    """Of (its number, an int, bytes, or a float for what is written as fixed32)."""
    parts = []
    for place, value in fields:
        if isinstance(value, int):
            parts.append(number(place << 3) + number(value))
        elif isinstance(value, float):
            parts.append(number(place << 3 | 5) + struct.pack("<I", int(value)))
        else:
            parts.append(number(place << 3 | 2) + number(len(value)) + value)
    return b"".join(parts)


def masked(data: bytes) -> int:
    """CRC-32C bit by bit (RFC 3720), masked."""
    crc = 2**32 - 1
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    crc ^= 2**32 - 1
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 2**32 - 1


def block(items, interval: int) -> bytes:
    out, restarts, before = b"", [], b""
    for i, (key, value) in enumerate(items):
        shared = 0
        if i % interval == 0:
            restarts.append(len(out))
        else:
            while shared < min(len(before), len(key)) and before[shared] == key[shared]:
                shared += 1
        sizes = shared, len(key) - shared, len(value)
        out += b"".join(map(number, sizes)) + key[shared:] + value
        before = key
    return out + struct.pack(f"<{len(restarts) + 1}I", *restarts, len(restarts))


def table(items, each: int = 20, compression: int = 0) -> bytes:
    """The items, so many to a block, in blocks and their index."""
    out, places = b"", []

    def put(content: bytes) -> bytes:
        nonlocal out
        handle = number(len(out)) + number(len(content))
        content += bytes([compression])
        out += content + struct.pack("<I", masked(content))
        return handle

    for i in range(0, len(items), each):
        places.append((items[i : i + each][-1][0], put(block(items[i : i + each], 16))))
    footer = put(block([], 16)) + put(block(places, 1))
    return out + footer.ljust(40, b"\0") + bytes.fromhex("57fb808b247547db")


def entry(array, at=(0, 0), **changed) -> bytes:
    shape = b"".join(message((2, message((1, length)))) for length in array.shape)
    value = {"dtype": KINDS[array.dtype.name], "shape": shape, "shard": at[0], "offset": at[1]}
    value |= {"size": array.nbytes, "crc": float(masked(array.tobytes()))} | changed
    return message(*enumerate(value.values(), 1))


HEADER = message((1, 2), (3, message((1, 1))))


def bundle(prefix, arrays, **changed):
    """Writes every other array into each of two shards; `changed` is of the last's entry."""
    shards, items = [b"", b""], [(b"", HEADER)]
    for i, name in enumerate(sorted(arrays)):
        change = changed if i == len(arrays) - 1 else {}
        items.append((name.encode(), entry(arrays[name], (i % 2, len(shards[i % 2])), **change)))
        shards[i % 2] += arrays[name].tobytes()
    prefix.with_name(prefix.name + ".index").write_bytes(table(items))
    for i, data in enumerate(shards):
        prefix.with_name(f"{prefix.name}.data-{i:05}-of-00002").write_bytes(data)


def raw(path, items) -> str:
    """A checkpoint of these entries, and data files of a hundred zeros."""
    prefix = path / "raw"
    (path / "raw.index").write_bytes(table([(b"", HEADER), *items]))
    for i in range(2):
        (path / f"raw.data-{i:05}-of-00002").write_bytes(bytes(100))
    return str(prefix)


def part(name: str, *extents: tuple[int, int]) -> bytes:
    """A slice's key, for numbers below 64."""
    numbers = bytes(0x80 + value for extent in extents for value in extent)
    return b"\0" + name.encode() + b"\0\1\1" + bytes([len(extents)]) + numbers


def sliced(array, *slices) -> bytes:
    """The entry of a variable in slices, each of (start, length) for every axis."""
    shape = b"".join(message((2, message((1, length)))) for length in array.shape)
    extents = (
        b"".join(message((1, message((1, start), (2, length)))) for start, length in slice_)
        for slice_ in slices
    )
    return message((1, KINDS[array.dtype.name]), (2, shape), *((7, extent) for extent in extents))
