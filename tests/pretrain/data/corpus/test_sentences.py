"""Text kept exactly as it is, and the words and bytes it had, whatever became of it."""

from pathlib import Path

import numpy as np
import pytest
from tokenizers import pre_tokenizers

from pretrain.data import batches, prepare
from pretrain.data.corpus import sentences, text_files, writer
from pretrain.data.corpus.format import Corpus
from pretrain.data.corpus.sentences import CONTINUED, DOCUMENT, PARAGRAPH, SENTENCE
from pretrain.runtime.errors import UserError
from tests.support import corpora

PIECES = {"name": "sentencepiece", "V": 150}
BYTES = {"name": "byte_bpe", "V": 300}
ODD = (
    "\n \n  Indented, don't you think?\t\n\n\nThree  blanks   here \n"
    "no-break\xa0 \n  ideographic\u3000\n\x1c\nvertical\x0b\x85line\nemoji 🙂 é e\u0301\n"
    "Windows\r\n\r\nlines\r\n 's 'tis 12,5 !!\n" + "word, " * 20_000 + "\n" + "x" * 40_000 + " y"
)


def write(folder: Path) -> dict[str, str]:
    """Documents of prose and an odd one; their names and texts."""
    folder.mkdir()
    texts = {f"{n}.txt": corpora.prose(n, 30 + n) for n in range(4)} | {"4.txt": ODD}
    for name, words in texts.items():
        (folder / name).write_bytes(words.encode())
    (folder / "5.txt").write_text(" \n\n\t \n")  # no document
    return texts


def load(folder: Path, **fields) -> Corpus:
    how = {"source": f"text:{folder}/text/*.txt", "cache": str(folder), "held_out": 0.0}
    return prepare.prepare(**how | {"tokens": PIECES} | fields)


def pieces(lines: list[str], documents: str = "file") -> list[tuple[str, int]]:
    return [(p.text, p.opens) for p in sentences.pieces(lines, documents, "whole")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("whole")


@pytest.fixture(scope="module")
def texts(folder):
    """As they are read: the last line ended."""
    return [words.removesuffix("\n") + "\n" for words in write(folder / "text").values()]


@pytest.fixture(scope="module")
def raw(folder, texts):
    return load(folder, sentences="whole", tokens=BYTES)


def document(corpus, number: int) -> np.ndarray:
    """Its tokens without the <eod>."""
    begin, end = corpus.documents[number : number + 2]
    return corpus.tokens[begin : end - 1]


def test_tokens_decode_to_the_very_text(raw, texts):
    assert raw.manifest["documents"] == len(texts)
    for number, words in enumerate(texts):
        assert raw.tokenizer.decode(document(raw, number)) == words


def test_pieces_are_cut_where_byte_level_tokens_end_anyway(texts):
    words = pre_tokenizers.ByteLevel(add_prefix_space=False).pre_tokenize_str
    for whole in texts:
        whole = whole.replace("x" * 40_000, "x")  # a word so long is cut
        cut = [piece.text for piece in sentences.pieces(text_files.lines([whole]), "file", "whole")]
        assert len(cut) > 10
        joined = [word for piece in cut for word, _ in words(piece)]
        assert joined == [word for word, _ in words(whole)]


def test_with_blank_lines_between_documents_each_is_its_paragraph(folder, texts):
    corpus = load(folder, sentences="whole", documents="blank", tokens=BYTES)
    paragraphs = [p + "\n" for p in texts[0].removesuffix("\n").split("\n\n") if p.strip()]
    for number, words in enumerate(paragraphs):
        assert corpus.tokenizer.decode(document(corpus, number)) == words.rstrip("\n") + "\n"
        assert corpus.bytes[number] == len(words.rstrip("\n").encode()) + 1


@pytest.mark.parametrize("how", ["split", "line", "whole"])
def test_words_and_bytes_are_those_of_the_documents(folder, texts, how):
    corpus = load(folder, sentences=how)
    lines = [words.split("\n")[:-1] for words in texts]
    if how != "whole":
        lines = [[line for line in document if line.strip()] for document in lines]
    assert corpus.words.tolist() == [len(words.split()) for words in texts]
    assert corpus.bytes.tolist() == [len("\n".join(own).encode()) + 1 for own in lines]
    assert corpus.manifest["words"] == corpus.words.sum()
    assert corpus.manifest["bytes"] == corpus.bytes.sum()


@pytest.mark.parametrize("size", [500, 5000])
def test_words_and_bytes_do_not_depend_on_the_parts(folder, texts, size, monkeypatch):
    whole = load(folder)
    monkeypatch.setattr(writer, "PART", size)
    again = load(folder, cache=str(folder / f"parts-of-{size}"))
    np.testing.assert_array_equal(again.words, whole.words)
    np.testing.assert_array_equal(again.bytes, whole.bytes)


@pytest.mark.parametrize("how", ["split", "line", "whole"])
@pytest.mark.parametrize("longest", [1, 2, 7, 50])
def test_a_word_cut_in_two_counts_once(texts, how, longest):
    for words in texts[:2]:
        lines = [line + "\n" for line in words.split("\n")[:-1]]
        cut = [part for line in lines for part in text_files.parts(line, longest)]
        found = list(sentences.pieces(cut, "file", how))
        assert sum(piece.words for piece in found) == len(words.split())
        if how == "whole":  # else a part may happen to be blank, and is dropped
            assert sum(piece.bytes for piece in found) == len(words.encode())


def test_a_corpus_kept_whole_has_a_sentence_per_line():
    lines = ["\n", " One \n", "line.  \n", "\n", "Three\n"]
    assert pieces(lines) == [
        ("\n One", DOCUMENT),
        (" \nline.", SENTENCE),
        ("  \n\nThree", PARAGRAPH),
        ("\n", CONTINUED),
    ]
    assert pieces(lines, "blank") == [
        (" One", DOCUMENT),
        (" \nline.", SENTENCE),
        ("  \n", CONTINUED),
        ("Three", DOCUMENT),
        ("\n", CONTINUED),
    ]


def test_parts_of_an_endless_line_begin_with_blanks():
    found = pieces(list(text_files.lines(["word " * 40_000 + "\nNext"])))
    assert [opens for _, opens in found[:-2]] == [DOCUMENT] + [CONTINUED] * (len(found) - 3)
    assert found[-2:] == [(" \nNext", SENTENCE), ("\n", CONTINUED)]
    assert all(words.startswith(" word") and words.endswith("d") for words, _ in found[1:-2])


@pytest.mark.parametrize("line", ["x" * 100_000, "x\n" + " " * 200_000 + "x", "x\n" * 100_000])
def test_pieces_kept_whole_are_bounded_and_lose_nothing(line):
    found = pieces(list(text_files.lines([line])))
    assert "".join(words for words, _ in found) == line.removesuffix("\n") + "\n"
    assert max(len(words) for words, _ in found) <= 2 * text_files.LONGEST + 1


def test_white_space_alone_is_no_document():
    assert pieces([" \n", "\t\n"]) == pieces([" \n"], "blank") == []


def test_lanes_read_a_corpus_kept_whole(folder, texts):
    corpus = load(folder, sentences="whole")
    batch = batches.build("lanes", corpus, B=2, L=32, reuse_len=16).batch(0)
    assert batch["tokens_BL"].shape == (2, 32)


def test_byte_level_text_has_no_paragraph_ends(folder, texts):
    with pytest.raises(UserError, match="no <eop>"):
        load(folder, sentences="whole", tokens=BYTES, paragraphs=True)


def stripped_pieces(
    lines: list[str], documents: str = "file", by: str = "split"
) -> list[tuple[str, int]]:
    return [(p.text.strip(), p.opens) for p in sentences.pieces(lines, documents, by)]


def test_byte_order_mark_and_windows_line_ends_leave_no_trace(tmp_path):
    path = tmp_path / "windows.txt"
    path.write_bytes(b"\xef\xbb\xbfOne.\r\n\r\nTwo.\r\nThree.\r\n")
    assert stripped_pieces(list(text_files.read(path))) == [
        ("One.", DOCUMENT),
        ("Two.", PARAGRAPH),
        ("Three.", SENTENCE),
    ]


def test_parts_of_an_endless_line_begin_no_sentence():
    lines = list(text_files.lines(["word " * 40_000 + "\nNext.\n"]))
    for by in ("line", "split"):
        opens = [p.opens for p in sentences.pieces(lines, "file", by)]
        assert opens[0] == DOCUMENT
        assert opens[1:-1] == [CONTINUED] * (len(opens) - 2)
        assert opens[-1] == (SENTENCE if by == "line" else CONTINUED)


@pytest.mark.parametrize("by", ["line", "split"])
def test_pieces_are_bounded_and_lose_nothing(by):
    lines = list(text_files.lines(["Ab. " * 30_000 + "x" * 100_000 + "!\n" + "poem\n" * 30_000]))
    found = list(sentences.pieces(lines, "file", by))
    assert "".join(p.text for p in found) == "".join(lines)
    assert max(len(p.text) for p in found) <= 2 * text_files.LONGEST


def test_blank_lines_part_paragraphs_or_documents():
    lines = ["One.\n", "\n", " \n", "Two.\n", "Three.\n"]
    assert [opens for _, opens in stripped_pieces(lines, "file")] == [DOCUMENT, PARAGRAPH, SENTENCE]
    assert [opens for _, opens in stripped_pieces(lines, "blank")] == [DOCUMENT, DOCUMENT, SENTENCE]


def test_leading_blank_lines_open_no_second_document():
    assert stripped_pieces(["\n", "One.\n"], "file") == [("One.", DOCUMENT)]


def test_ready_sentences_are_lines():
    lines = ["mr. x\n", "is. Here\n"]
    assert stripped_pieces(lines, by="line") == [("mr. x", DOCUMENT), ("is. Here", SENTENCE)]


def test_sentences_end_where_a_reader_would_end_them():
    expected = [
        "Mr. Adams met Gen. Washington in the U.S. Senate on Jan. 5 at 3.30 p.m. sharp.",
        "Was No. 5 signed by J. Q. Adams, i.e. the son?",
        '"It was!" he said.',
        "The firm, Smith and Sons Inc.",
        "(Then it rained...",
        "A lot.)",
        "So did I.",
        "End",
    ]
    assert [s for s, _ in stripped_pieces([" ".join(expected) + "\n"])] == expected


def test_a_sentence_runs_over_lines_up_to_a_blank_one():
    assert stripped_pieces(["It goes\n", "on. And\n", "\n", "ends\n"]) == [
        ("It goes\non.", DOCUMENT),
        ("And", SENTENCE),
        ("ends", PARAGRAPH),
    ]


@pytest.mark.parametrize("field", ["documents", "sentences"])
def test_an_unknown_option_is_answered_with_the_known_ones(field):
    with pytest.raises(UserError, match=f"{field}='pages': choose one of"):
        sentences.check(**{"documents": "file", "sentences": "split"} | {field: "pages"})
