"""Words: every type of the text has an id, the commonest first; the others are unknown."""

import re
from collections import Counter
from pathlib import Path

import pytest

from pretrain.data.tokenizers import registry
from pretrain.runtime.errors import UserError
from tests.support.tokenizer_data import TEXTS, pieces
from tests.support.tokenizer_data import learn as learn_kind

MARKS = ["<S>", "</S>", "<UNK>"]


def learn(texts, **fields):
    return learn_kind("words", texts, **fields)


def rank(texts, cut):
    """Lists all words, the commonest first; of equally frequent ones that with the lesser bytes."""
    counts = Counter(word for text in texts for word in cut(text))
    return sorted(counts, key=lambda word: (-counts[word], word.encode()))


def publish(tmp_path, *lines):
    """Writes a published vocabulary."""
    path = tmp_path / "vocabulary.txt"
    path.write_bytes("".join(f"{line}\n" for line in lines).encode())
    return str(path)


# --- learning --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("split", "cut"), [("blank", str.split), ("punctuation", re.compile(r"\w+|[^\w\s]").findall)]
)
def test_ids_follow_falling_frequency_and_then_bytes(split, cut):
    texts = [*TEXTS, "une été à l'étang", "北 京 zz aa zz", "aa \u2028 ba\u00a0ab"]
    tokenizer = learn(texts, split=split)
    assert tokenizer.pieces == [*MARKS, *rank(texts, cut)]
    assert tokenizer.V == len(tokenizer.pieces) > 500


def test_more_words_than_any_default_size_are_all_kept():
    tokenizer = learn((f"w{i} w{i + 1}" for i in range(40_000)), split="blank")
    assert set(tokenizer.pieces) == {*MARKS, *(f"w{i}" for i in range(40_001))}
    assert tokenizer.V == 40_004


def test_types_keeps_the_commonest_words_and_the_others_are_unknown():
    texts = ["a a a b b c", "d"]
    assert learn(texts, types=5).pieces == [*MARKS, "a", "b"]
    assert pieces(learn(texts, types=5), "d a c") == ["<UNK>", "a", "<UNK>"]
    assert learn(texts, types=100) == learn(texts)


def test_lower_case_is_asked_for():
    assert pieces(learn(["The the THE"]), "The") == ["The"]
    assert pieces(learn(["The the THE"], lower=True), "THE") == ["the"]
    assert learn(["The the THE"], lower=True).V == 4


# --- encoding --------------------------------------------------------------------------------


def test_text_decodes_to_its_words_without_marks(learned):
    words = learned["words"]
    assert words.special == dict(bos=0, eos=1, unk=2, eod=1)
    assert words.word_start_V.tolist() == [True] * words.V
    for text, ids in zip(TEXTS[:20], words.encode(TEXTS[:20]), strict=True):
        assert words.decode([0, *ids, 1]) == text.replace(".", " .")


def test_no_text_is_a_mark():
    """Written in the text, <S> and </S> are unknown words, however often they occur."""
    text = "<S> a </S> a <UNK> b </S>"
    tokenizer = learn([text], split="blank")
    assert tokenizer.pieces == [*MARKS, "a", "b"]
    assert tokenizer.encode([text])[0].tolist() == [2, 3, 2, 3, 2, 4, 2]
    assert "<" in learn([text]).pieces


def test_words_are_cut_as_ids_are_but_keep_their_spelling():
    tokenizer = learn(["don't stop, he said"], lower=True)
    texts = ["Don't QUIT, he said", ""]
    assert tokenizer.words(texts) == [["don", "'", "t", "quit", ",", "he", "said"], []]
    assert [len(ids) for ids in tokenizer.encode(texts)] == [7, 0]
    assert learn(["a"], split="blank").words(["don't\tstop,  he"]) == [["don't", "stop,", "he"]]


def test_words_with_odd_separators_survive_saving(tmp_path):
    tokenizer = learn(["a\x1cb \u2003 c\rd x", "É \x0b y"], split="blank", lower=True)
    tokenizer.save(tmp_path)
    assert registry.load(tmp_path) == tokenizer


def test_extended_keeps_its_ids_and_adds_the_other_words_behind():
    tokenizer = learn(["a a b c"], types=5)
    extended = tokenizer.extend(["d a z z", "</S> c Z"])
    assert extended.pieces == [*tokenizer.pieces, "z", "/", "<", ">", "S", "Z", "c", "d"]
    assert tokenizer.pieces == [*MARKS, "a", "b"] == tokenizer.extend([]).pieces
    assert learn(["a"], split="blank").extend(["</S> b <S>"]).pieces == [*MARKS, "a", "b"]


# --- published files -------------------------------------------------------------------------


def test_a_published_vocabulary_comes_first_in_its_order(tmp_path):
    path = publish(tmp_path, *MARKS, "zebra", "the\r", "!!!MAXTERMID", "a")
    tokenizer = learn(["b the the the", "c c"], vocabulary=path)
    assert tokenizer.pieces == [*MARKS, "zebra", "the", "a", "c", "b"]
    assert learn(["b b c"], vocabulary=path, types=7).pieces[3:] == ["zebra", "the", "a", "b"]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"<S>\n</S>\nthe\n", "does not begin with a line each of <S>, </S>, <UNK>"),
        (b"", "does not begin"),
        (b"<S>\n</S>\n<UNK>\nthe\na\nthe\n", "line 6 repeats line 4"),
        (b"<S>\n</S>\n<UNK>\n\xff\n", "byte 15 is not UTF-8"),
    ],
)
def test_a_file_that_is_no_vocabulary_is_refused_by_its_line(tmp_path, content, reason):
    path = tmp_path / "words.txt"
    path.write_bytes(content)
    with pytest.raises(UserError, match=rf"tokens\.vocabulary=.*words\.txt: {reason}"):
        registry.settings("words", vocabulary=str(path))


def test_wrong_settings_are_named(tmp_path):
    for fields, message in (
        ({"vocabulary": str(tmp_path / "gone")}, r"gone: cannot be read"),
        ({"split": "line"}, r"tokens\.split='line': choose one of 'punc.*, 'blank'"),
        ({"types": 3}, r"tokens\.types=3: the marks are 3"),
    ):
        with pytest.raises(UserError, match=message):
            registry.settings("words", **fields)
    path = publish(tmp_path, *MARKS, "a", "b")
    with pytest.raises(UserError, match=r"tokens\.types=4, but .* has 5 words"):
        learn(["a"], vocabulary=path, types=4)


def test_settings_know_a_published_file_by_its_content(tmp_path):
    paths = [publish(tmp_path, *MARKS, "a"), str(tmp_path / "other.txt")]
    Path(paths[1]).write_bytes(Path(paths[0]).read_bytes())
    one, two = (registry.settings("words", vocabulary=path) for path in paths)
    assert one == two != registry.settings("words")
    Path(paths[1]).write_text("\n".join([*MARKS, "b"]))
    assert registry.settings("words", vocabulary=paths[1]) != one
