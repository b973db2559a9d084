"""Google's names and axes become PyTorch's."""

import pytest

from pretrain.conversion.systems.bert_family import list_torch_rows

ROWS = {
    "backbone/token_VD": ("bert.embeddings.word_embeddings.weight", "VD"),
    "backbone/layers/attention/wq_DHK": (
        "bert.encoder.layer.{n}.attention.self.query.weight",
        "(HK)D",
    ),
    "head/transform_norm/scale_D": ("cls.predictions.transform.LayerNorm.weight", "D"),
    "next_DC": ("cls.seq_relationship.weight", "CD"),
}


@pytest.mark.parametrize("ours", ROWS)
def test_a_row_has_pytorch_s_name_and_order_of_axes(ours):
    assert list_torch_rows()[ours] == ROWS[ours]
