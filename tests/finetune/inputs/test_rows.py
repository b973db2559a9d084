"""Texts stand in a row as each system has them, and lose what must go."""

import contextlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from finetune.inputs.question_windows import Questions
from finetune.inputs.rows import RowBuilder, check_padding, truncate_lengths
from finetune.inputs.words import frame_words
from pretrain.data.tokenizers import byte_bpe, wordpiece, words
from pretrain.data.tokenizers.character_ids import spell_words
from pretrain.inference.text_format import load_format
from pretrain.runtime.errors import UserError
from tests.support import gpt_releases, tokenizer_data
from tests.support.bert_release import PIECES


def wordpieces():
    return wordpiece.Tokenizer(PIECES)


def spelled():
    return words.Tokenizer([*words.MARKS, "one", "two"], "blank")


def row(made, *texts, **options):
    return made.row(made.tokens(texts), **options)


def test_bert_s_pairs_are_between_cls_and_sep_in_two_segments():
    made = RowBuilder(load_format("bert"), wordpieces(), 12)
    pieces = PIECES.index
    found = row(made, "a b", "c")
    names = ["[CLS]", "a", "b", "[SEP]", "c", "[SEP]"]
    assert found.ids.tolist() == [pieces(name) for name in names]
    assert found.segments.tolist() == [0, 0, 0, 0, 1, 1]
    assert (found.starts, found.cut) == ([1, 4], 0)
    arrays = made.arrays([found])
    assert arrays["valid_BL"].tolist() == [[True] * 6 + [False] * 6]
    assert arrays["tokens_BL"][0, :6].tolist() == found.ids.tolist()


def test_xlnet_s_rows_end_with_cls_of_its_own_segment_and_are_padded_on_the_left():
    unigram = tokenizer_data.unigram()
    made = RowBuilder(load_format("xlnet"), unigram, 16)
    one, two = unigram.encode(["abc", "cab"])
    found = row(made, "abc", "cab")
    sep, cls = unigram.special["sep"], unigram.special["cls"]
    assert found.ids.tolist() == [*one, sep, *two, sep, cls]
    assert found.segments.tolist() == [0] * (len(one) + 1) + [1] * (len(two) + 1) + [2]
    arrays = made.arrays([found])
    n = len(found.ids)
    assert arrays["valid_BL"].tolist() == [[False] * (16 - n) + [True] * n]
    assert arrays["tokens_BL"][0, -1] == cls
    assert arrays["segments_BL"][0, -1] == 2


def test_gpt_s_rows_have_three_tokens_that_are_behind_the_vocabulary():
    tokenizer = gpt_releases.vocabulary("hugging_face")
    made = RowBuilder(load_format("gpt"), tokenizer, 12)
    assert isinstance(tokenizer, byte_bpe.Tokenizer)
    assert made.new == 3
    one, two = tokenizer.encode(["ab", "c"])
    start, delimiter, extract = range(tokenizer.V, tokenizer.V + 3)
    assert row(made, "ab", "c").ids.tolist() == [start, *one, delimiter, *two, extract]
    assert RowBuilder(load_format("gpt"), tokenizer, 12, V=303).marks(["extract"]).tolist() == [302]


def test_elmo_s_words_are_spelled_between_marks_of_their_own():
    made = RowBuilder(load_format("elmo"), spelled(), 12, W=10)
    found = row(made, "one new", "two")
    expected = spell_words(["<S>", "one", "new", "</S>", "<S>", "two", "</S>"], 10)
    np.testing.assert_array_equal(found.ids, expected)
    assert made.arrays([found])["tokens_BLW"].shape == (1, 12, 10)


def test_ulmfit_s_backward_rows_are_read_from_the_text_s_end():
    tokenizer, eod = spelled(), spelled().special["eod"]
    one, two = tokenizer.encode(["one two two"])[0][:2]
    found = row(RowBuilder(load_format("ulmfit"), tokenizer, 4), "one two two two")
    assert found.ids.tolist() == [eod, one, two, two]
    backward = RowBuilder(load_format("ulmfit_backward"), tokenizer, 8)
    assert row(backward, "one two two").ids.tolist() == [eod, two, two, one]
    for read in (lambda: frame_words(backward, [["one"]]), lambda: Questions(backward, 2, 2)):
        with pytest.raises(UserError, match="reads from left to right"):
            read()


def test_three_texts_go_on_as_two_do():
    unigram = tokenizer_data.unigram()
    made = RowBuilder(load_format("xlnet"), unigram, 32)
    found = row(made, "abc", "cab", "bad")
    sep = unigram.special["sep"]
    assert (found.ids == sep).sum() == 3
    assert sorted(set(found.segments.tolist())) == [0, 1, 2]


def test_what_is_too_long_loses_the_end_of_its_longest_text():
    made = RowBuilder(load_format("bert"), wordpieces(), 9)
    found = row(made, "a b c d e f", "g h")
    assert len(found.ids) == 9
    assert found.cut == 2
    told = [PIECES[i] for i in found.ids]
    assert told == ["[CLS]", "a", "b", "c", "d", "[SEP]", "g", "h", "[SEP]"]
    kept = row(made, "a b c d e f", "g h", keep=[0])
    assert [PIECES[i] for i in kept.ids] == ["[CLS]", *"abcdef", "[SEP]", "[SEP]"]
    assert kept.starts == [1, -1]


def brute(lengths, room, keep):
    """A token at a time, as BERT's _truncate_seq_pair; of equal ones the first keeps its own."""
    left = list(lengths)
    while sum(left) > room:
        free = [i for i in range(len(left)) if i not in keep and left[i]] or [
            i for i in range(len(left)) if left[i]
        ]
        longest = max(left[i] for i in free)
        left[next(i for i in free if left[i] == longest)] -= 1
    return left


@given(st.lists(st.integers(0, 30), min_size=1, max_size=4), st.integers(0, 60), st.integers(0, 3))
def test_lengths_fit_and_nobody_gives_up_more_than_a_token_beyond_another(lengths, room, kept):
    keep = [kept] if kept < len(lengths) and len(lengths) > 1 else []
    left, over = truncate_lengths(lengths, room, keep)
    expected = brute(lengths, room, keep)
    assert sum(left) == min(sum(lengths), room)
    assert over == sum(lengths) - sum(left)
    assert all(0 <= a <= b for a, b in zip(left, lengths, strict=True))
    assert sorted(left[i] for i in range(len(left)) if i not in keep) == sorted(
        expected[i] for i in range(len(left)) if i not in keep
    )
    assert [left[i] for i in keep] == [expected[i] for i in keep]


def test_a_tokenizer_without_the_marks_of_the_format_is_refused():
    with pytest.raises(UserError, match="<cls>"):
        RowBuilder(load_format("bert"), spelled(), 9)


@pytest.mark.parametrize(
    ("side", "places", "message"),
    [
        ("right", "110", ""),
        ("right", "101", "row 1"),
        ("right", "011", "row 1"),
        ("left", "011", ""),
    ],
)
def test_padding_stands_on_the_side_of_the_format_alone(side, places, message):
    rows = {"valid_BL": np.array([[1, 1, 1], [int(x) for x in places]], bool)}
    with pytest.raises(UserError, match=message) if message else contextlib.nullcontext():
        check_padding(rows, side)
