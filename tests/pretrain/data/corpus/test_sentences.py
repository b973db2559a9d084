"""Text kept exactly as it is, and the words and bytes it had, whatever became of it."""

import numpy as np
import pytest
from tokenizers import pre_tokenizers

from pretrain.data.corpus import sentences, text_files, writer
from pretrain.data.corpus.sentences import CONTINUED, DOCUMENT, PARAGRAPH, SENTENCE
from pretrain.runtime.errors import UserError
from tests.support import corpora

BYTES = {"name": "byte_bpe", "V": 300}
ODD = (
    "\n \n  Indented, don't you think?\t\n\n\nThree  blanks   here \n"
    "no-break\xa0 \n  ideographic\u3000\n\x1c\nvertical\x0b\x85line\nemoji 🙂 é e\u0301\n"
    "Windows\r\n\r\nlines\r\n 's 'tis 12,5 !!\n" + "word, " * 6_000 + "\n" + "x" * 40_000 + " y"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("whole")


@pytest.fixture(scope="module")
def texts(folder) -> list[str]:
    """Documents of prose and an odd one, as they are read: the last line ended."""
    texts = [*(corpora.prose(n, 30 + n) for n in range(4)), ODD]
    for number, text in enumerate(texts):
        (folder / f"{number}.txt").write_bytes(text.encode())
    (folder / "5.txt").write_text(" \n\n\t \n")  # no document
    return [text.removesuffix("\n") + "\n" for text in texts]


@pytest.fixture(scope="module")
def load(folder, texts):
    def load(cache=folder, **fields):
        return corpora.load(f"text:{folder}/*.txt", cache, held_out=0.0, **fields)

    return load


def decode(corpus, number: int) -> str:
    """Decodes the tokens of a document, without its <eod>."""
    begin, end = corpus.documents[number : number + 2]
    return corpus.tokenizer.decode(corpus.tokens[begin : end - 1])


def cut(lines: list[str], documents: str = "file", how: str = "whole") -> list[tuple[str, int]]:
    """Cuts lines into (text, what it opens)."""
    pieces = sentences.cut_pieces(lines, documents, how)
    return [(p.text if how == "whole" else p.text.strip(), p.opens) for p in pieces]


def test_tokens_decode_to_the_very_text(load, texts):
    corpus = load(sentences="whole", tokens=BYTES)
    assert [decode(corpus, number) for number in range(corpus.manifest["documents"])] == texts


def test_pieces_are_cut_where_byte_level_tokens_end_anyway(texts):
    split = pre_tokenizers.ByteLevel(add_prefix_space=False).pre_tokenize_str
    for text in texts:
        whole = text.replace("x" * 40_000, "x")  # a word so long is cut
        pieces = [piece for piece, _ in cut([*text_files.split_lines([whole])])]
        assert len(pieces) > 10
        joined = [word for piece in pieces for word, _ in split(piece)]
        assert joined == [word for word, _ in split(whole)]


def test_with_blank_lines_between_documents_each_is_its_paragraph(load, texts):
    corpus = load(sentences="whole", documents="blank", tokens=BYTES)
    paragraphs = [p.strip("\n") + "\n" for p in texts[0].split("\n\n") if p.strip()]
    for number, paragraph in enumerate(paragraphs):
        assert decode(corpus, number) == paragraph
        assert corpus.bytes[number] == len(paragraph.encode())


@pytest.mark.parametrize("how", ["split", "line", "whole"])
def test_words_and_bytes_are_those_of_the_documents(load, texts, how):
    corpus = load(sentences=how)
    lines = [text.split("\n")[:-1] for text in texts]
    if how != "whole":
        lines = [[line for line in document if line.strip()] for document in lines]
    assert corpus.words.tolist() == [len(text.split()) for text in texts]
    assert corpus.bytes.tolist() == [len("\n".join(document).encode()) + 1 for document in lines]
    assert corpus.manifest["words"] == corpus.words.sum()
    assert corpus.manifest["bytes"] == corpus.bytes.sum()


def test_words_and_bytes_do_not_depend_on_the_parts(load, tmp_path, monkeypatch):
    whole = load()
    monkeypatch.setattr(writer, "PART", 900)
    in_parts = load(tmp_path)
    np.testing.assert_array_equal(in_parts.words, whole.words)
    np.testing.assert_array_equal(in_parts.bytes, whole.bytes)


@pytest.mark.parametrize("how", ["split", "line", "whole"])
@pytest.mark.parametrize("longest", [1, 2, 7, 50])
def test_a_word_cut_in_two_counts_once(texts, how, longest):
    for text in texts[:2]:
        lines = [line + "\n" for line in text.split("\n")[:-1]]
        parts = [part for line in lines for part in text_files.split_line(line, longest)]
        pieces = list(sentences.cut_pieces(parts, "file", how))
        assert sum(piece.words for piece in pieces) == len(text.split())
        if how == "whole":  # else a part may happen to be blank, and is dropped
            assert sum(piece.bytes for piece in pieces) == len(text.encode())


def test_a_corpus_kept_whole_has_a_sentence_per_line():
    lines = ["\n", " One \n", "line.  \n", "\n", "Three\n"]
    line = (" \nline.", SENTENCE)
    end = ("\n", CONTINUED)
    assert cut(lines) == [("\n One", DOCUMENT), line, ("  \n\nThree", PARAGRAPH), end]
    paragraphs = [(" One", DOCUMENT), line, ("  \n", CONTINUED), ("Three", DOCUMENT), end]
    assert cut(lines, "blank") == paragraphs


def test_parts_of_an_endless_line_begin_no_sentence():
    lines = [*text_files.split_lines(["word " * 40_000 + "\nNext.\n"])]
    for how, last in (("line", SENTENCE), ("split", CONTINUED)):
        opens = [opens for _, opens in cut(lines, how=how)]
        assert opens == [DOCUMENT] + [CONTINUED] * (len(opens) - 2) + [last]
    pieces = cut(lines)
    assert [opens for _, opens in pieces[:-2]] == [DOCUMENT] + [CONTINUED] * (len(pieces) - 3)
    assert pieces[-2:] == [(" \nNext.", SENTENCE), ("\n", CONTINUED)]
    assert all(text.startswith(" word") and text.endswith("d") for text, _ in pieces[1:-2])


SENTENCES = "Ab. " * 30_000 + "x" * 100_000 + "!\n" + "poem\n" * 30_000


@pytest.mark.parametrize(
    ("text", "how"),
    [
        (SENTENCES, "line"),
        (SENTENCES, "split"),
        ("x" * 100_000, "whole"),
        ("x\n" + " " * 200_000 + "x", "whole"),
        ("x\n" * 100_000, "whole"),
    ],
    ids=range(5),
)
def test_pieces_are_bounded_and_lose_nothing(text, how):
    pieces = [*sentences.cut_pieces([*text_files.split_lines([text])], "file", how)]
    assert "".join(piece.text for piece in pieces) == text.removesuffix("\n") + "\n"
    assert max(len(piece.text) for piece in pieces) <= 2 * text_files.LONGEST + 1


def test_white_space_alone_is_no_document():
    assert cut([" \n", "\t\n"]) == cut([" \n"], "blank") == []


def test_byte_order_mark_and_windows_line_ends_leave_no_trace(tmp_path):
    path = tmp_path / "windows.txt"
    path.write_bytes(b"\xef\xbb\xbfOne.\r\n\r\nTwo.\r\nThree.\r\n")
    expected = [("One.", DOCUMENT), ("Two.", PARAGRAPH), ("Three.", SENTENCE)]
    assert cut([*text_files.read_lines(path)], how="split") == expected


def test_blank_lines_part_paragraphs_or_documents():
    lines = ["\n", "One.\n", "\n", " \n", "Two.\n", "Three.\n"]
    for documents, second in (("file", PARAGRAPH), ("blank", DOCUMENT)):
        opens = [opens for _, opens in cut(lines, documents, "split")]
        assert opens == [DOCUMENT, second, SENTENCE]


def test_ready_sentences_are_lines():
    lines = ["mr. x\n", "is. Here\n"]
    assert cut(lines, how="line") == [("mr. x", DOCUMENT), ("is. Here", SENTENCE)]


def test_every_line_ends_a_sentence_though_it_is_blank(tmp_path):
    text = " \n = Title = \n \n \n The end . \n"
    (tmp_path / "a.txt").write_text(text)
    fields = dict(sentences="every_line", tokens={"name": "words", "split": "blank"})
    corpus = corpora.load(f"text:{tmp_path}/*.txt", tmp_path, held_out=0.0, **fields)
    read = [corpus.tokenizer.pieces[i] for i in corpus.tokens]
    assert read == [word for line in text.splitlines() for word in [*line.split(), "</S>"]]
    assert len(corpus.sentences) - 1 == 5


def test_every_line_of_documents_between_blank_lines_is_refused():
    with pytest.raises(UserError, match="sentences='every_line' needs documents='file'"):
        sentences.check_options("blank", "every_line")


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
    assert [text for text, _ in cut([" ".join(expected) + "\n"], how="split")] == expected


def test_a_sentence_runs_over_lines_up_to_a_blank_one():
    expected = [("It goes\non.", DOCUMENT), ("And", SENTENCE), ("ends", PARAGRAPH)]
    assert cut(["It goes\n", "on. And\n", "\n", "ends\n"], how="split") == expected


@pytest.mark.parametrize("field", ["documents", "sentences"])
def test_an_unknown_option_is_answered_with_the_known_ones(field):
    with pytest.raises(UserError, match=f"{field}='pages': choose one of"):
        sentences.check_options(**{"documents": "file", "sentences": "split"} | {field: "pages"})
