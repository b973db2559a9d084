"""Tables of sorted keys are read, or refused where they are broken."""

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pretrain.formats import leveldb
from tests.support.tensorflow_checkpoint import masked, number, table

ITEMS = [(f"key/{i:03}".encode(), bytes(range(i))) for i in range(50)]


@pytest.mark.parametrize("each", [1, 7, 50])
def test_pairs_come_back_in_order_from_blocks_of_any_size(each):
    assert list(leveldb.parse_table(table(ITEMS, each)).items()) == ITEMS


def test_compressed_blocks_are_refused():
    with pytest.raises(ValueError, match="compressed"):
        leveldb.parse_table(table(ITEMS, compression=1))


def test_keys_out_of_order_are_refused():
    with pytest.raises(ValueError, match="out of order"):
        leveldb.parse_table(table([(b"b", b""), (b"a", b"")]))


def outcome(data: bytes) -> dict[bytes, bytes]:
    try:
        return leveldb.parse_table(data)
    except (ValueError, struct.error):
        return {}


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=60))
def test_any_block_with_the_right_checksum_is_refused_clearly(inner):
    inner += b"\0"
    footer = (number(0) + number(len(inner) - 1)) * 2
    data = inner + struct.pack("<I", masked(inner)) + footer.ljust(40, b"\0")
    assert outcome(data + bytes.fromhex("57fb808b247547db")) == {}
