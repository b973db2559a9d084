"""Detokenised text reads like text, and can be put back word for word."""

import re
from pathlib import Path

import pytest

from pretrain.data.corpus import detokenize, sentences
from pretrain.data.corpus.detokenize import join_wikitext, split_wikitext
from pretrain.data.corpus.text_files import LONGEST
from pretrain.runtime.errors import UserError
from tests.support import corpora

REAL = Path(__file__).parents[5] / "shared" / "data" / "wikitext-2"
COUNTS = {"test": (241_211, 4_358), "valid": (213_886, 3_760)}  # words, lines, as published

LINES = {
    " a co @-@ star of 1 @,@ 000 @,@ 000 films , 3 @.@ 5 m long . \n": (
        "a co-star of 1,000,000 films, 3.5 m long.\n"
    ),
    ' He did n \'t ( as of 2000 – 05 ) say : " It \'s mine , " but " yes ! " ; why ? \n': (
        'He did n\'t (as of 2000–05) say: "It\'s mine," but "yes!"; why?\n'
    ),
    " US $ 5 , £ 3 or 50 % [ sic ] of the players ' pay ... \n": (
        "US $5, £3 or 50% [sic] of the players' pay ...\n"
    ),
    " Mr. J. Smith of the U.S. met the <unk> in St. Louis . \n": (
        "Mr. J. Smith of the U.S. met the <unk> in St. Louis.\n"
    ),
    " = = Career = = \n": "= = Career = =\n",
    ' An odd " quote , and vitamin C . \n': 'An odd " quote, and vitamin C .\n',
    " \n": "\n",
}
LEFT = ["Not spaced.\n", " two  blanks \n", " his 1,000th \n", " Foo. bar \n", " Windows . \r\n"]


@pytest.mark.parametrize("line", LINES)
def test_a_line_becomes_running_text_and_back(line):
    assert join_wikitext(line) == LINES[line]
    assert split_wikitext(join_wikitext(line)) == line


@pytest.mark.parametrize("line", LEFT)
def test_a_line_that_could_not_be_put_back_is_left(line):
    assert join_wikitext(line) == line


@pytest.mark.parametrize("unit", ["x", "a.", " ", "-", "'", '"', ". ", " .", "1 @,@ ", "@"])
def test_an_endless_line_of_anything_ends_and_comes_back(unit):
    for line in (unit * LONGEST, f" {unit * LONGEST} \n"):
        assert join_wikitext(line) == line or split_wikitext(join_wikitext(line)) == line


def load(folder: Path, V: int):
    how = dict(sentences="whole", detokenise="wikitext", held_out=0.0)
    return corpora.load(f"text:{folder}/a.txt", folder, tokens={"name": "byte_bpe", "V": V}, **how)


def test_words_are_counted_before_and_a_line_end_is_one(tmp_path):
    (tmp_path / "a.txt").write_text("".join(LINES) * 50)
    corpus = load(tmp_path, 300)
    assert corpus.tokenizer.decode(corpus.tokens[:-1]) == "".join(LINES.values()) * 50
    assert corpus.words.tolist() == [50 * (len("".join(LINES).split()) + len(LINES))]
    assert corpus.bytes.tolist() == [50 * len("".join(LINES).encode())]


def test_an_over_long_line_stays_as_it_is(tmp_path):
    line = " odd ," * LONGEST + " \n"
    (tmp_path / "a.txt").write_text(" One , two . \n" + line + " One , two . \n")
    corpus = load(tmp_path, 260)
    expected = f"One, two.\n{line}One, two.\n"
    assert corpus.tokenizer.decode(corpus.tokens[:-1]) == expected


def test_an_unknown_style_is_answered_with_the_known_ones():
    with pytest.raises(UserError, match="detokenise='ptb': choose one of '', 'wikitext'"):
        detokenize.check_style("ptb")


@pytest.mark.parametrize("split", ["valid", pytest.param("test", marks=pytest.mark.slow)])
def test_wikitext_2_becomes_text_and_back_with_the_literatures_counts(split):
    path = REAL / f"wiki.{split}.tokens"
    if not path.exists():
        pytest.skip(f"WikiText-2 is not at {path}")
    lines = re.findall(r"[^\n]*\n", path.read_text())
    texts = [join_wikitext(line) for line in lines]
    changed = [(line, text) for line, text in zip(lines, texts, strict=True) if text != line]
    assert all(split_wikitext(text) == line for line, text in changed)
    for size in (len, lambda part: len("".join(part).split())):
        assert size([line for line, _ in changed]) > 0.99 * size(lines)
    whole = "".join(texts)
    assert sum(map(whole.count, ("@-@", "@,@", "@.@", " ,"))) < 0.01 * len(lines)
    pieces = list(sentences.cut_pieces(lines, "file", "whole", "wikitext"))
    words, ends = COUNTS[split]
    assert len(lines) == ends
    assert sum(piece.words for piece in pieces) == words + ends
    assert sum(piece.bytes for piece in pieces) == len("".join(lines).encode())
    assert "".join(piece.text for piece in pieces) == whole
