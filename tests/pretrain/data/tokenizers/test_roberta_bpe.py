"""RoBERTa's bytes have BERT's marks, which no text becomes."""

import pytest

from pretrain.data.tokenizers import registry
from tests.support.tokenizer_data import TEXTS


@pytest.fixture(scope="module")
def tokenizer():
    return registry.learn(iter(TEXTS), name="roberta_bpe", V=300)


def test_marks_have_the_ids_that_roberta_gave_them(tokenizer):
    marks = {"cls": 0, "pad": 1, "sep": 2, "unk": 3, "mask": 299, "eod": 2}
    assert tokenizer.special == marks
    assert sorted(tokenizer.word_start_V.nonzero()[0])[:4] == [0, 1, 2, 3]


def test_any_text_comes_back_and_becomes_no_mark(tokenizer, tmp_path):
    text = "<s> é <mask></s>"
    tokenizer.save(tmp_path)
    for each in (tokenizer, registry.load(tmp_path)):
        (ids,) = each.encode([text])
        assert each.decode(ids) == text
        assert not {*ids.tolist()} & {*each.special.values()}
