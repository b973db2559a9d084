"""WordPiece as BERT uses it: its clean-up, its pieces, its special tokens."""

import pytest

from pretrain.data.tokenizers import registry
from pretrain.data.tokenizers.wordpiece import Tokenizer
from pretrain.runtime.errors import UserError
from tests.support.tokenizer_data import TEXTS, learn, pieces, published, starts

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
SMALL = [*SPECIAL, "un", "##aff", "##able", "##a", "un##", "cafe", "café", "Cafe", "Café", "a", ","]


@pytest.fixture(scope="module")
def tokenizer(learned):
    return learned["wordpiece"]


@pytest.fixture(scope="module")
def uncased():
    return published("wordpiece", "bert/bert_base_uncased_vocab.txt")


@pytest.fixture(scope="module")
def cased():
    return published("wordpiece", "bert/bert_base_cased_vocab.txt", V=28_996, lower=False)


@pytest.fixture(scope="module")
def chinese():
    return published("wordpiece", "bert-chinese/vocab.txt", V=21_128)


def test_special_tokens_come_first_and_separators_end_documents(tokenizer):
    assert tokenizer.pieces[:5] == SPECIAL
    assert tokenizer.special == dict(pad=0, unk=1, cls=2, sep=3, mask=4, eod=3)


def test_words_start_where_no_mark_says_otherwise(tokenizer):
    assert all(start != piece.startswith("##") for piece, start in starts(tokenizer).items())
    assert 0 < tokenizer.word_start_V.sum() < tokenizer.V
    assert all(tokenizer.word_start_V[:5])


def test_each_text_of_the_corpus_has_its_pieces_again(tokenizer):
    for text, ids in zip(TEXTS, tokenizer.encode(TEXTS), strict=True):
        assert tokenizer.special["unk"] not in ids
        assert tokenizer.decode(ids) == text.lower()


def test_the_longest_piece_is_taken_else_the_word_is_unknown():
    small = Tokenizer(SMALL)
    found = pieces(small, "Unaffable,unaffa unaffx")
    assert found == ["un", "##aff", "##able", ",", "un", "##aff", "##a", "[UNK]"]


def test_a_word_of_more_than_200_letters_is_unknown():
    small = Tokenizer(SMALL)
    assert pieces(small, "a" * 200) == ["a"] + ["##a"] * 199
    assert pieces(small, "a" * 201) == ["[UNK]"]


@pytest.mark.parametrize(
    ("lower", "keep_accents", "piece"),
    [(True, None, "cafe"), (True, True, "café"), (False, None, "Café"), (False, False, "Cafe")],
)
def test_accents_go_with_capitals_unless_asked_otherwise(tmp_path, lower, keep_accents, piece):
    path = tmp_path / "vocab.txt"
    path.write_text("\n".join(SMALL))
    fields = dict(V=len(SMALL), model=str(path), lower=lower, keep_accents=keep_accents)
    assert pieces(learn("wordpiece", **fields), "Café") == [piece]
    assert registry.settings("wordpiece", **fields)["keep_accents"] == ("é" in piece)


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"[PAD]\n[UNK]\nhello\n", r".* no \[CLS\]"), (b"[PAD]\n\xff", ": byte 6 is not UTF-8")],
)
def test_a_file_that_is_no_vocabulary_is_refused(tmp_path, content, message):
    path = tmp_path / "words.txt"
    path.write_bytes(content)
    with pytest.raises(UserError, match=rf"words\.txt{message}"):
        learn("wordpiece", V=3, model=str(path))


def test_the_published_uncased_vocabulary_gives_the_published_ids(uncased):
    assert uncased.special == dict(pad=0, unk=100, cls=101, sep=102, mask=103, eod=102)
    (ids,) = uncased.encode(["Hello, my dog is cute"])
    assert ids.tolist() == [7592, 1010, 2026, 3899, 2003, 10140]


def test_the_published_vocabularies_cut_words_as_bert_does(uncased, cased):
    words = pieces(uncased, "John Johanson’s naïve house")
    assert words == ["john", "johan", "##son", "’", "s", "naive", "house"]
    assert " ".join(pieces(cased, "Embeddings naïve")) == "Em ##bed ##ding ##s na ##ï ##ve"


def test_chinese_is_cut_at_every_character(chinese):
    assert " ".join(pieces(chinese, "北京2008年 BERT模型")) == "北 京 2008 年 be ##rt 模 型"
    assert chinese.pieces.count("\u2028") == 1


def test_a_tokenizer_json_stands_for_a_vocabulary(tokenizer, tmp_path):
    path = tmp_path / "tokenizer.json"
    path.write_text(tokenizer.copy_library().to_str())
    other = learn("wordpiece", model=str(path))
    assert other.pieces == tokenizer.pieces
    assert [x.tolist() for x in other.encode(TEXTS)] == [
        x.tolist() for x in tokenizer.encode(TEXTS)
    ]
    with pytest.raises(UserError, match=r"tokens\.lower=False: .* has pieces for lower=True"):
        learn("wordpiece", model=str(path), lower=False)
    path.write_text('{"model": {"type": "BPE", "vocab": {"a": 1}}}')
    with pytest.raises(UserError, match=r"is no WordPiece tokenizer: its model is 'BPE'"):
        learn("wordpiece", model=str(path))
    path.write_text('{"model": {"vocab": {"a": 0}}}')
    with pytest.raises(UserError, match="is not a vocabulary of BERT"):
        learn("wordpiece", model=str(path))
