"""Parses and writes protocol buffers without their library: messages of numbered fields.

A field is a number or bytes.
Follows protobuf.dev/programming-guides/encoding.
"""

import struct
from typing import Any

FIXED = {1: 8, 5: 4}  # bytes of a number, by wire type
VARINT, BYTES = 0, 2


def decode_varint(data: bytes, at: int) -> tuple[int, int]:
    """Decodes the number that begins at byte `at`, seven bits to a byte.

    Returns:
        (the number in [0, 2^64), the byte after it).

    Raises:
        ValueError: it does not end within the data, or is longer than ten bytes.
    """
    value = 0
    for place, byte in enumerate(data[at : at + 10]):
        value |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return value % 2**64, at + place + 1
    raise ValueError("a number has no end")


def encode_varint(value: int) -> bytes:
    """Encodes a number, at least 0, seven bits to a byte."""
    places = range(0, max(value.bit_length(), 1), 7)
    digits = [value >> place & 0x7F for place in places]
    return bytes([*(digit | 0x80 for digit in digits[:-1]), digits[-1]])


def encode_bytes(number: int, value: bytes) -> bytes:
    """Encodes a field of bytes: behind a message it is one more of the field's values."""
    return encode_varint(number << 3 | BYTES) + encode_varint(len(value)) + value


def encode_float(number: int, value: float) -> bytes:
    """Encodes a field of a number of 4 bytes."""
    return encode_varint(number << 3 | 5) + struct.pack("<f", value)


def take_bytes(data: bytes, at: int, count: int) -> tuple[bytes, int]:
    """Returns `count` bytes from byte `at`, and the byte after them.

    Raises:
        ValueError: the data have no such bytes.
    """
    if at + count > len(data):
        raise ValueError("it ends too early")
    return data[at : at + count], at + count


def parse_fields(message: bytes) -> dict[int, list[Any]]:
    """Parses a message into the values of each field: ints, never negative, or bytes; in order.

    Raises:
        ValueError: this is no message.
    """
    values: dict[int, list[Any]] = {}
    at = 0
    while at < len(message):
        tag, at = decode_varint(message, at)
        value, at = _decode_value(message, at, tag & 7)
        values.setdefault(tag >> 3, []).append(value)  # a field may repeat
    return values


def _decode_value(message: bytes, at: int, kind: int) -> tuple[Any, int]:
    if kind == VARINT:
        return decode_varint(message, at)
    if kind == BYTES:
        count, at = decode_varint(message, at)
        return take_bytes(message, at, count)
    if kind not in FIXED:
        raise ValueError(f"a field of the unknown wire type {kind}")
    number, at = take_bytes(message, at, FIXED[kind])
    return int.from_bytes(number, "little"), at
