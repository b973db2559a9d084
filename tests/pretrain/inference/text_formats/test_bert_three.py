"""Three texts have a segment each, in a backbone that has as many."""

import pytest

from finetune.inputs.rows import RowBuilder
from pretrain.inference.text_formats.bert_three import FORMAT
from tests.support import text_tasks


@pytest.mark.parametrize(("S", "last"), [(3, 2), (2, 1)])
def test_a_third_text_has_its_own_segment_where_there_is_one(S, last):
    inputs = RowBuilder(FORMAT, text_tasks.bert()[0].tokenizer, 12, S=S)
    row = inputs.row(inputs.tokens(["a b", "c", "d"]))
    segments = inputs.arrays([row])["segments_BL"][0]
    assert segments.tolist()[: len(row.ids)] == [0, 0, 0, 0, 1, 1, last, last]
