"""Parses LevelDB's table, the format of `.index` files: sorted keys and values in blocks.

Follows doc/table_format.md of LevelDB and its table/block_builder.cc.  The file ends with where two
blocks are: one of metadata, and one whose values are where the blocks of data are.
"""

import struct
from collections.abc import Iterator

import google_crc32c
import numpy as np

from pretrain.formats.protobuf import decode_varint, take_bytes

MAGIC = 0xDB4775248B80FB57
FOOTER = 48  # bytes


def parse_table(data: bytes) -> dict[bytes, bytes]:
    """Parses a table into {key: value}, in its order.

    Raises:
        ValueError: it is broken, or compressed.
    """
    footer = data[-FOOTER:]
    if len(footer) < FOOTER or int.from_bytes(footer[-8:], "little") != MAGIC:
        raise ValueError("it does not end as a table of LevelDB does")
    metadata, at = _decode_handle(footer, 0)
    index, _ = _decode_handle(footer, at)
    _read_block(data, *metadata)  # for its checksum alone
    pairs: dict[bytes, bytes] = {}
    last = None
    for _, handle in _decode_entries(_read_block(data, *index)):
        for key, value in _decode_entries(_read_block(data, *_decode_handle(handle, 0)[0])):
            if last is not None and key <= last:
                raise ValueError(f"the keys {last!r} and {key!r} are out of order")
            pairs[key] = value
            last = key
    return pairs


def compute_masked_crc(data: bytes | np.ndarray) -> int:
    """Returns the CRC-32C of the bytes, rotated and with a constant added as LevelDB stores it."""
    crc = google_crc32c.value(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) % 2**32


def _decode_handle(data: bytes, at: int) -> tuple[tuple[int, int], int]:
    """Decodes (offset, size) of a block, and the byte after them."""
    offset, at = decode_varint(data, at)
    size, at = decode_varint(data, at)
    return (offset, size), at


def _read_block(data: bytes, offset: int, size: int) -> bytes:
    """Returns the entries of a block, without offsets and checksum."""
    # Behind the entries are the offsets of those that share nothing, and their number; behind the
    # block a byte for its compression and a masked CRC-32C of both.
    block, at = take_bytes(data, offset, size + 1)  # with the byte of its compression
    crc, _ = take_bytes(data, at, 4)
    if compute_masked_crc(block) != int.from_bytes(crc, "little"):
        raise ValueError(f"the block at byte {offset} does not have its checksum")
    if block[-1]:  # the byte of its compression
        raise ValueError("its blocks are compressed, which TensorFlow's writer never does")
    (restarts,) = struct.unpack("<I", block[-5:-1])
    end = size - 4 * (restarts + 1)  # offsets for a binary search, which all of it does not need
    if end < 0:
        raise ValueError(f"the block at byte {offset} is shorter than it says")
    return block[:end]


def _decode_entries(block: bytes) -> Iterator[tuple[bytes, bytes]]:
    # An entry: how many bytes of its key are the previous key's, how many more, how many of the
    # value, then those bytes.
    at, key = 0, b""
    while at < len(block):
        shared, at = decode_varint(block, at)
        more, at = decode_varint(block, at)
        length, at = decode_varint(block, at)
        if shared > len(key):
            raise ValueError("a key goes on from a longer one than there is")
        rest, at = take_bytes(block, at, more)
        value, at = take_bytes(block, at, length)
        key = key[:shared] + rest
        yield key, value
