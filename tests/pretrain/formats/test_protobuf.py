"""Protocol buffers by hand: fields come back as they were sent, and half a message is none."""

import struct

import pytest
from google.protobuf import struct_pb2, wrappers_pb2
from hypothesis import given, settings
from hypothesis import strategies as st

from pretrain.formats import protobuf


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**64 - 1), st.binary(max_size=300), st.floats(width=32, allow_nan=False))
def test_fields_are_those_of_protobufs_own_library(number, text, real):
    messages = wrappers_pb2.UInt64Value(value=number), wrappers_pb2.BytesValue(value=text)
    found = [protobuf.parse_fields(message.SerializeToString()) for message in messages]
    assert found == [{1: [value]} if value else {} for value in (number, text)]
    fixed = protobuf.parse_fields(struct_pb2.Value(number_value=real).SerializeToString())[2][0]
    assert struct_pb2.Value.FromString(b"\x11" + fixed.to_bytes(8, "little")).number_value == real


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 2**29 - 1), st.binary(max_size=300), st.floats(width=32, allow_nan=False))
def test_fields_that_are_written_are_read_back(field, text, real):
    written = protobuf.encode_bytes(field, text) + protobuf.encode_float(field, real)
    found = protobuf.parse_fields(written)
    assert found == {field: [text, int.from_bytes(struct.pack("<f", real), "little")]}
    message = wrappers_pb2.BytesValue.FromString(protobuf.encode_bytes(1, text))
    assert message.value == text
    assert wrappers_pb2.FloatValue.FromString(protobuf.encode_float(1, real)).value == real


def test_repeated_fields_are_all_there_in_order():
    values = struct_pb2.ListValue(values=[struct_pb2.Value(string_value=text) for text in "abc"])
    found = protobuf.parse_fields(values.SerializeToString())[1]
    assert [protobuf.parse_fields(value) for value in found] == [
        {3: [b"a"]},
        {3: [b"b"]},
        {3: [b"c"]},
    ]


@pytest.mark.parametrize("message", ["0a03616263", "08ffff03", "0d01020304", "110102030405060708"])
def test_a_message_cut_short_is_refused(message):
    whole = bytes.fromhex(message)
    assert protobuf.parse_fields(whole)
    for length in range(1, len(whole)):
        with pytest.raises(ValueError, match=r"no end|too early"):
            protobuf.parse_fields(whole[:length])


def test_a_number_has_64_bits_and_ten_bytes_at_most():
    assert protobuf.decode_varint(b"\xff" * 9 + b"\x7f", 0) == (2**64 - 1, 10)
    with pytest.raises(ValueError, match="no end"):
        protobuf.decode_varint(b"\xff" * 10 + b"\x01", 0)


@pytest.mark.parametrize("kind", [3, 4, 6, 7])
def test_groups_and_unknown_kinds_are_refused(kind):
    with pytest.raises(ValueError, match=f"wire type {kind}"):
        protobuf.parse_fields(bytes([1 << 3 | kind, 0]))
