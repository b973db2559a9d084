"""Every word of every sentence has one place, and its pieces stand there."""

import numpy as np
import pytest

from finetune.inputs import words
from finetune.inputs.rows import RowBuilder
from pretrain.data.tokenizers import registry
from pretrain.inference.text_format import load_format
from pretrain.runtime.errors import UserError
from tests.support import tokenizer_data as cases

SYSTEMS = {"bert": "wordpiece", "xlnet": "sentencepiece", "gpt": "byte_bpe", "elmo": "words"}
V = {"wordpiece": 120, "sentencepiece": 150, "byte_bpe": 300, "bpe": 120}
SENTENCES = [text.split() for text in cases.TEXTS if text][:6]
SENTENCES[2] = [*SENTENCES[2], "don't", "3,500", "(x)", "it's", "中文", "a", "!", "''", "é"]


def learned(name):
    sized = {"V": V[name]} if name in V else {"split": "blank"}
    return registry.learn(iter(cases.TEXTS), name=name, **sized)


@pytest.fixture(scope="module")
def made():
    """RowBuilder of a system, of rows so long."""
    learnt = {system: learned(name) for system, name in SYSTEMS.items()}
    return lambda system, L: RowBuilder(
        load_format(system), learnt[system], L, W=12 * (system == "elmo")
    )


@pytest.mark.parametrize("name", ["wordpiece", "sentencepiece", "byte_bpe", "bpe"])
def test_pieces_of_words_are_those_of_running_text(made, name):
    system = dict(zip(SYSTEMS.values(), SYSTEMS, strict=True)).get(name, "gpt")
    inputs = RowBuilder(load_format(system), learned(name), 8) if name == "bpe" else made(system, 8)
    for sentence, found in zip(SENTENCES, words.encode_words(inputs, SENTENCES), strict=True):
        assert len(found) == len(sentence)
        whole = inputs.tokenizer.encode([" ".join(sentence)])[0]
        np.testing.assert_array_equal(np.concatenate(found), whole)


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("last", [False, True])
def test_rows_are_the_pieces_in_order_and_places_those_of_each_word(made, system, last):
    inputs = made(system, 40)
    each = [word for sentence in words.encode_words(inputs, SENTENCES) for word in sentence]
    arrays, _ = words.frame_words(inputs, SENTENCES, last=last)
    tokens = arrays["tokens_BLW" if inputs.W else "tokens_BL"]
    speaks = [word[-1 if last else 0] for word in each]
    np.testing.assert_array_equal(tokens[arrays["word_BL"]], speaks)
    before = len(inputs.format.before)
    behind = len(inputs.format.after) + len(inputs.format.last)
    found = zip(tokens, arrays["valid_BL"], strict=True)
    read = [row[valid][before : valid.sum() - behind] for row, valid in found]
    np.testing.assert_array_equal(np.concatenate(read), np.concatenate(each))


@pytest.mark.parametrize("L", [12, 17, 64])
def test_a_long_sentence_is_read_in_as_few_rows_as_hold_it_and_no_word_is_parted(made, L):
    inputs = made("bert", L)
    arrays, notes = words.frame_words(inputs, SENTENCES)
    row = 0
    for found in words.encode_words(inputs, SENTENCES):
        left = [len(word) for word in found]
        while left:
            held = arrays["word_BL"][row].sum()
            assert arrays["valid_BL"][row].sum() == sum(left[:held]) + 2  # [CLS], [SEP]
            assert sum(left[: held + 1]) > L - 2 or held == len(left)
            left, row = left[held:], row + 1
    assert row == len(arrays["word_BL"])
    longer = sum(sum(map(len, x)) > L - 2 for x in words.encode_words(inputs, SENTENCES))
    assert notes == (
        [f"{longer} of 6 sentences are longer than {L} and read in parts"] if longer else []
    )


def test_a_word_longer_than_a_row_keeps_its_first_pieces_and_is_counted(made):
    inputs = made("bert", 8)
    whole = inputs.tokens(["bafegilomunsta"])[0]
    assert len(whole) > 6
    arrays, notes = words.frame_words(inputs, [["ba", "bafegilomunsta", "."]])
    np.testing.assert_array_equal(arrays["tokens_BL"][1, 1:7], whole[:6])
    assert arrays["word_BL"].sum() == 3
    assert "1 words are longer than a row" in notes[-1]


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("last", [False, True])
def test_texts_of_a_row_are_framed_as_such_and_every_word_has_its_place(made, system, last):
    inputs, pair = made(system, 200), SENTENCES[:2]
    counts = [[*map(len, pair)], [len(pair[0])]]
    arrays, _ = words.frame_words(inputs, [pair[0] + pair[1], pair[0]], counts=counts, last=last)
    each = words.encode_words(inputs, pair)
    pieces = [np.concatenate(text) for text in each]
    for name, x in inputs.arrays([inputs.row(pieces), inputs.row(pieces[:1])]).items():
        np.testing.assert_array_equal(arrays[name], x)
    tokens = arrays["tokens_BLW" if inputs.W else "tokens_BL"][0][arrays["word_BL"][0]]
    np.testing.assert_array_equal(tokens, [word[-1 if last else 0] for word in each[0] + each[1]])


def test_texts_that_a_row_has_no_room_for_are_refused(made):
    with pytest.raises(UserError, match=r"L=8: example 1 takes \d+ tokens, and texts whose words"):
        words.frame_words(made("bert", 8), [["ba"] * 6], counts=[[3, 3]])


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_word_of_no_pieces_is_told_too(made, system):
    inputs = made(system, 12)
    arrays, _ = words.frame_words(inputs, [["", "ba"], [], ["\u00a0"]])
    assert arrays["word_BL"].sum(1).tolist() == [2, 0, 1]
    tokenizer = inputs.tokenizer
    if system == "bert":
        assert (arrays["tokens_BL"][arrays["word_BL"]] == tokenizer.special["unk"]).sum() == 2
    if system == "elmo":
        spelled = arrays["tokens_BLW"][arrays["word_BL"]][0]
        assert bytes(x for x in spelled.tolist() if x < 256) == b"<UNK>"


def test_what_was_spread_over_rows_is_gathered_again(made):
    word_BL = words.frame_words(made("xlnet", 12), [*SENTENCES, [], ["a"]])[0]["word_BL"]
    rng = np.random.default_rng(0)
    lengths = [*map(len, SENTENCES), 0, 1]
    values = [rng.integers(0, 99, n).tolist() for n in lengths]
    spread_BL = words.scatter_to_words(values, word_BL, -7)
    assert (spread_BL[~word_BL] == -7).all()
    assert words.gather_from_words(spread_BL, word_BL, lengths) == values


def test_a_row_without_room_is_refused(made):
    with pytest.raises(UserError, match="L=2 leaves no room for a word"):
        words.frame_words(made("bert", 2), [["ba"]])


def test_characters_of_words_stand_at_their_places(made):
    word_BL = words.frame_words(made("xlnet", 12), [*SENTENCES, ["a"]])[0]["word_BL"]
    chars_BLW = words.scatter_characters([*SENTENCES, ["a"]], word_BL, 20)
    assert (chars_BLW[~word_BL] == 260).all()
    spelled = [bytes(x for x in chars_W if x < 256).decode() for chars_W in chars_BLW[word_BL]]
    assert spelled == [word for words in SENTENCES for word in words] + ["a"]


def test_frequent_words_are_counted_in_lower_case():
    sentences = [["A", "b1", "a"], ["B2", "b1", "b1"]]
    assert words.list_frequent_words(sentences, 2) == ["b1", "a"]
    assert words.list_frequent_words(sentences, 2, zero_digits=True) == ["b0", "a"]
