"""Examples of texts are rows, in one order or in both."""

import numpy as np

from finetune.inputs.rows import RowBuilder
from finetune.inputs.texts import frame_texts
from pretrain.inference.text_format import load_format
from tests.support import tagging_data

EXAMPLES = [{"texts": ["the mone", "koba lost"]}, {"texts": ["a way", "the koba"]}]


def inputs(L=16):
    return RowBuilder(load_format("gpt"), tagging_data.tokenizer("gpt"), L)


def test_in_both_orders_an_example_has_a_row_of_each():
    arrays, notes = frame_texts(inputs(), EXAMPLES, both=True)
    assert arrays["tokens_BOL"].shape == (2, 2, 16)
    turned = [{"texts": x["texts"][::-1]} for x in EXAMPLES]
    for order, examples in enumerate((EXAMPLES, turned)):
        single, _ = frame_texts(inputs(), examples)
        np.testing.assert_array_equal(arrays["tokens_BOL"][:, order], single["tokens_BL"])
    assert notes == []


def test_rows_that_were_cut_are_counted():
    long = {"texts": ["the mone lost", "way " * 40]}
    assert frame_texts(inputs(), [long, *EXAMPLES])[1] == ["1 of 3 rows were longer than 16"]
