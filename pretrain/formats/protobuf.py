"""Protocol buffers without their library: a message is numbered fields, each a number or bytes.

Follows protobuf.dev/programming-guides/encoding.
"""

from typing import Any

FIXED = {1: 8, 5: 4}  # bytes of a number, by wire type
VARINT, BYTES = 0, 2


def varint(data: bytes, at: int) -> tuple[int, int]:
    """The number in [0, 2^64) that begins at this byte, seven bits to a byte, and where it ends.

    Raises:
        ValueError: it does not end within the data, or is longer than ten bytes.
    """
    value = 0
    for place, byte in enumerate(data[at : at + 10]):
        value |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return value % 2**64, at + place + 1
    raise ValueError("a number has no end")


def taken(data: bytes, at: int, count: int) -> tuple[bytes, int]:
    """So many bytes from here, and where they end.

    Raises:
        ValueError: the data have no such bytes.
    """
    if at + count > len(data):
        raise ValueError("it ends too early")
    return data[at : at + count], at + count


def fields(message: bytes) -> dict[int, list[Any]]:
    """All values of each field, in order: of numbers int (never negative), of all else bytes.

    Raises:
        ValueError: this is no message.
    """
    found: dict[int, list[Any]] = {}
    at = 0
    while at < len(message):
        tag, at = varint(message, at)
        value, at = _value(message, at, tag & 7)
        found.setdefault(tag >> 3, []).append(value)
    return found


def _value(message: bytes, at: int, kind: int) -> tuple[Any, int]:
    if kind == VARINT:
        return varint(message, at)
    if kind == BYTES:
        count, at = varint(message, at)
        return taken(message, at, count)
    if kind not in FIXED:
        raise ValueError(f"a field of the unknown wire type {kind}")
    number, at = taken(message, at, FIXED[kind])
    return int.from_bytes(number, "little"), at
