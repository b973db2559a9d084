"""Words: every type of the text has an id, the commonest first, and </S> closes each sentence."""

import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from pretrain.data import prepare, tokenizers
from pretrain.data.corpus import writer
from pretrain.data.corpus.sentences import CONTINUED, DOCUMENT, PARAGRAPH, SENTENCE, Piece
from pretrain.runtime.errors import UserError
from tests.support import corpora, tokenizer_data

ROOT = Path(__file__).parents[4]
TEXTS = tokenizer_data.TEXTS
MARKS = ["<S>", "</S>", "<UNK>"]
LEARN = """
import sys
from pathlib import Path
from tests.pretrain.data.tokenizers import test_words as t
t.learn().save(Path(sys.argv[1]))
"""


def learn(texts=TEXTS, **fields):
    return tokenizers.learn(iter(texts), **{"name": "words"} | fields)


def counted(texts, cut):
    """All words, the commonest first; of equally frequent ones that with the lesser bytes."""
    counts = Counter(word for text in texts for word in cut(text))
    return sorted(counts, key=lambda word: (-counts[word], word.encode()))


def published(tmp_path, *lines):
    path = tmp_path / "vocabulary.txt"
    path.write_bytes("".join(f"{line}\n" for line in lines).encode())
    return str(path)


def spelled(tokenizer, text):
    return [tokenizer.pieces[i] for i in tokenizer.encode([text])[0]]


# --- learning --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("split", "cut"),
    [("blank", str.split), ("punctuation", re.compile(r"\w+|[^\w\s]").findall)],
)
def test_ids_follow_falling_frequency_and_then_bytes(split, cut):
    texts = [*TEXTS, "une été à l'étang", "北 京 zz aa zz", "aa \u2028 ba\u00a0ab"]
    made = learn(texts, split=split)
    assert made.pieces == [*MARKS, *counted(texts, cut)]
    assert made.V == len(made.pieces) > 500


def test_more_words_than_any_default_size_are_all_kept():
    made = learn((f"w{i} w{i + 1}" for i in range(40_000)), split="blank")
    assert set(made.pieces) == {*MARKS, *(f"w{i}" for i in range(40_001))}
    assert made.V == 40_004


def test_any_process_learns_the_same_bytes(tmp_path):
    learn().save(tmp_path / "here")
    environment = os.environ | dict(PYTHONHASHSEED="5", RAYON_NUM_THREADS="3")
    words = [sys.executable, "-c", LEARN, str(tmp_path / "there")]
    subprocess.run(words, cwd=ROOT, env=environment, check=True)
    assert tokenizers.digest(tmp_path / "here") == tokenizers.digest(tmp_path / "there")


def test_types_keeps_the_commonest_words_and_the_others_are_unknown():
    texts = ["a a a b b c", "d"]
    assert learn(texts, types=5).pieces == [*MARKS, "a", "b"]
    assert spelled(learn(texts, types=5), "d a c") == ["<UNK>", "a", "<UNK>"]
    assert learn(texts, types=100) == learn(texts)


def test_lower_case_is_asked_for():
    assert spelled(learn(["The the THE"]), "The") == ["The"]
    assert spelled(learn(["The the THE"], lower=True), "THE") == ["the"]
    assert learn(["The the THE"], lower=True).V == 4


# --- encoding --------------------------------------------------------------------------------


def test_special_tokens_are_the_three_marks():
    made = learn()
    assert made.special == dict(bos=0, eos=1, unk=2, eod=1)
    assert made.word_start_V.tolist() == [True] * made.V


def test_text_decodes_to_its_words_without_marks():
    made = learn()
    for text, ids in zip(TEXTS[:20], made.encode(TEXTS[:20]), strict=True):
        assert ids.dtype == np.int32
        np.testing.assert_array_equal(ids, made.encode([text])[0])
        assert made.decode([0, *ids, 1]) == text.replace(".", " .")
    assert [len(ids) for ids in made.encode(["", TEXTS[0], ""])][::2] == [0, 0]
    assert made.encode([]) == []


def test_no_text_is_a_mark():
    """Written in the text, <S> and </S> are unknown words, however often they occur."""
    text = "<S> a </S> a <UNK> b </S>"
    made = learn([text], split="blank")
    assert made.pieces == [*MARKS, "a", "b"]
    assert made.encode([text])[0].tolist() == [2, 3, 2, 3, 2, 4, 2]
    assert "<" in learn([text]).pieces


def test_words_are_cut_as_ids_are_but_keep_their_spelling():
    made = learn(["don't stop, he said"], lower=True)
    texts = ["Don't QUIT, he said", ""]
    assert made.words(texts) == [["don", "'", "t", "quit", ",", "he", "said"], []]
    assert [len(ids) for ids in made.encode(texts)] == [7, 0]
    assert learn(["a"], split="blank").words(["don't\tstop,  he"]) == [["don't", "stop,", "he"]]


def test_saved_and_loaded_it_is_the_same(tmp_path):
    made = learn(["a\x1cb \u2003 c\rd x", "É \x0b y"], split="blank", lower=True)
    made.save(tmp_path / "a")
    loaded = tokenizers.load(tmp_path / "a")
    loaded.save(tmp_path / "b")
    assert loaded == made
    assert tokenizers.digest(tmp_path / "a") == tokenizers.digest(tmp_path / "b")


def test_extended_keeps_its_ids_and_adds_the_other_words_behind():
    made = learn(["a a b c"], types=5)
    more = made.extend(["d a z z", "</S> c Z"])
    assert more.pieces[:5] == made.pieces
    assert more.pieces[5:] == ["z", "/", "<", ">", "S", "Z", "c", "d"]
    assert made.pieces == [*MARKS, "a", "b"] == made.extend([]).pieces
    assert learn(["a"], split="blank").extend(["</S> b <S>"]).pieces == [*MARKS, "a", "b"]


# --- published files -------------------------------------------------------------------------


def test_a_published_vocabulary_comes_first_in_its_order(tmp_path):
    path = published(tmp_path, *MARKS, "zebra", "the", "!!!MAXTERMID", "a")
    made = learn(["b the the the", "c c"], vocabulary=path)
    assert made.pieces == [*MARKS, "zebra", "the", "a", "c", "b"]
    assert learn(["b b c"], vocabulary=path, types=7).pieces[3:] == ["zebra", "the", "a", "b"]


def test_windows_line_ends_are_no_part_of_a_word(tmp_path):
    made = learn([], vocabulary=published(tmp_path, *(f"{word}\r" for word in [*MARKS, "a"])))
    assert made.pieces == [*MARKS, "a"]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"<S>\n</S>\nthe\n", "does not begin with a line each of <S>, </S>, <UNK>"),
        (b"", "does not begin"),
        (b"<S>\n</S>\n<UNK>\nthe\na\nthe\n", "line 6 repeats line 4"),
        (b"<S>\n</S>\n<UNK>\n\xff\n", "byte 15 is not UTF-8"),
    ],
)
def test_a_vocabulary_that_is_none_is_refused_by_its_line(tmp_path, content, reason):
    path = tmp_path / "words.txt"
    path.write_bytes(content)
    with pytest.raises(UserError, match=rf"tokens\.vocabulary=.*words\.txt: {reason}"):
        tokenizers.settings("words", vocabulary=str(path))


def test_wrong_settings_are_named(tmp_path):
    with pytest.raises(UserError, match=r"gone: cannot be read"):
        tokenizers.settings("words", vocabulary=str(tmp_path / "gone"))
    with pytest.raises(UserError, match=r"tokens\.split='line': choose one of 'punc.*, 'blank'"):
        tokenizers.settings("words", split="line")
    with pytest.raises(UserError, match=r"tokens\.types=3: the marks are 3"):
        tokenizers.settings("words", types=3)
    path = published(tmp_path, *MARKS, "a", "b")
    with pytest.raises(UserError, match=r"tokens\.types=4, but .* has 5 words"):
        learn(["a"], vocabulary=path, types=4)


def test_settings_know_a_published_file_by_its_content(tmp_path):
    paths = [published(tmp_path, *MARKS, "a"), str(tmp_path / "other.txt")]
    Path(paths[1]).write_bytes(Path(paths[0]).read_bytes())
    one, two = (tokenizers.settings("words", vocabulary=path) for path in paths)
    assert one == two != tokenizers.settings("words")
    Path(paths[1]).write_text("\n".join([*MARKS, "b"]))
    assert tokenizers.settings("words", vocabulary=paths[1]) != one


# --- in a corpus -----------------------------------------------------------------------------


def test_each_sentence_of_a_corpus_ends_exactly_once(tmp_path):
    corpus = corpora.make(tmp_path, tokens={"name": "words"}, documents="blank")
    ends = np.flatnonzero(corpus.tokens == 1)
    np.testing.assert_array_equal(ends, corpus.sentences[1:] - 1)
    assert not (corpus.tokens == 0).any()
    assert set(corpus.documents) <= set(corpus.sentences)
    assert corpus.manifest["sentences"] == sum(40 + number for number in range(12))


def test_a_corpus_reads_back_as_its_text(tmp_path):
    corpus = corpora.make(tmp_path, tokens={"name": "words"})
    words = corpora.prose(3, 43).replace(".", " .").split()
    ids = corpus.tokens[corpus.documents[3] : corpus.documents[4]]
    assert corpus.tokenizer.decode(ids) == " ".join(words)


def test_parts_of_an_endless_sentence_are_one_sentence():
    made = learn(["a b"])
    opens = [DOCUMENT, SENTENCE, CONTINUED, PARAGRAPH, DOCUMENT]
    pieces = [Piece("a b", what, 2, 3) for what in opens]
    arrays = writer.encode(pieces, made, writer.closing_tokens(made, paragraphs=False), first=True)
    assert arrays["tokens"].tolist() == [3, 4, 1, 3, 4, 3, 4, 1, 3, 4, 1, 3, 4]
    assert arrays["sentences"].tolist() == [0, 3, 8, 11]
    assert arrays["documents"].tolist() == [0, 11]


@pytest.mark.parametrize(
    ("special", "paragraphs", "sentence", "paragraph", "document"),
    [
        (dict(eod=7), False, [], [], [7]),
        (dict(eod=7, eop=8), True, [], [8], [8, 7]),
        (dict(eos=1, eod=1), False, [1], [1], [1]),
        (dict(eos=1, eod=7, eop=8), True, [1], [1, 8], [1, 8, 7]),
    ],
)
def test_what_ends_a_sentence_ends_paragraphs_and_documents_too(
    special, paragraphs, sentence, paragraph, document
):
    ends = writer.closing_tokens(SimpleNamespace(special=special), paragraphs)
    expected = {CONTINUED: [], SENTENCE: sentence, PARAGRAPH: paragraph, DOCUMENT: document}
    assert {opens: end.tolist() for opens, end in ends.items()} == expected


def test_paragraphs_have_no_mark_here(tmp_path):
    with pytest.raises(UserError, match="no <eop>"):
        corpora.make(tmp_path, tokens={"name": "words"}, paragraphs=True)


def test_words_that_only_another_text_has_keep_their_spelling(tmp_path):
    """With a run's own tokenizer; one of pieces stays as it is."""
    learn(["one two two"]).save(tmp_path / "words")
    tokenizer_data.learn("wordpiece").save(tmp_path / "wordpiece")
    (tmp_path / "text.txt").write_text("One three two three three.\n")
    read = dict(source=f"text:{tmp_path}/text.txt", cache=str(tmp_path / "data"), held_out=0)
    saved = {"name": "saved", "folder": str(tmp_path / "words")}
    corpus = prepare.prepare(tokens=saved, **read)
    assert corpus.tokenizer.pieces == [*MARKS, "two", "one", "three", ".", "One"]
    assert corpus.tokens.tolist() == [7, 5, 3, 5, 5, 6, 1]
    corpus = prepare.prepare(tokens=saved | {"folder": str(tmp_path / "wordpiece")}, **read)
    assert corpus.manifest["tokenizer"] == tokenizers.digest(tmp_path / "wordpiece")
