"""Turns tokenised benchmarks into running text, so that any tokenizer can be compared on them.

Radford et al. 2019 (GPT-2), section 3.1: perplexity is per word of the original data set, on text
that invertible rules have put back together.
"""

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from pretrain.runtime.errors import UserError

Rule = tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]]

ABBREVIATIONS = (
    "Adm Ave Bros Brig Capt Cmdr Co Col Corp Dept Dr Drs Fr Fig Gen Gov Hon Inc Jr Lt Ltd Maj Mr "
    "Mrs Ms Mt Messrs No Nos Op Ph Prof Pvt Rep Rev Rs Sen Sgt Sr St al cf etc pp v var vs viz"
)
KEEPS_DOT = re.compile(rf"[A-Za-z]|(?:\w+\.)+\w+|{'|'.join(ABBREVIATIONS.split())}")


def join_wikitext(line: str) -> str:
    """Turns a line of WikiText into running text, if `split_wikitext` can undo that."""
    text = _apply(JOIN, line.strip(" \n"))
    text += "\n" * line.endswith("\n")
    # Otherwise the perplexity per word would be that of another text.
    return text if split_wikitext(text) == line else line


def split_wikitext(text: str) -> str:
    """Returns the line of WikiText that `join_wikitext` made this from."""
    tokenised = _apply(PART, text.removesuffix("\n"))
    return (f" {tokenised} " if tokenised else " ") + "\n" * text.endswith("\n")


def _apply(rules: Sequence[Rule], text: str) -> str:
    for pattern, replacement in rules:
        text = pattern.sub(replacement, text)
    return text


def _join_dot(match: re.Match[str]) -> str:
    # Unless that would look like an abbreviation, whose dot nothing would part again.
    return match[0] if KEEPS_DOT.fullmatch(match[1]) else f"{match[1]}."


def _part_dot(match: re.Match[str]) -> str:
    return match[0] if KEEPS_DOT.fullmatch(match[1]) else f"{match[1]} ."


# Dots, commas, hyphens and dashes inside numbers and words, punctuation, brackets, currency, quotes
# (by turns opening and closing) and apostrophes lose the blanks around them.  Headings and <unk>
# stay.
JOIN: list[Rule] = [
    (re.compile(r"(?<!\S)(\S*[^\s.]) \.(?=\s|$)"), _join_dot),
    (re.compile(r"(?<=[\d>]) @([.,])@ (?=[\d<])"), r"\1"),
    (re.compile(r"(?<=\d) – (?=\d)"), "–"),
    (re.compile(r" @-@ "), "-"),
    (re.compile(r"(?<=\w) '(?=\w)"), "'"),
    (re.compile(r"(?<=s) '(?!\w)"), "'"),
    (re.compile(r'" ([^"]*) "'), r'"\1"'),
    (re.compile(r" ([,;:!?%)\]])"), r"\1"),
    (re.compile(r"([(\[$£]) "), r"\1"),
]
# The inverse of JOIN; the last two put single blanks between words.
PART: list[Rule] = [
    (re.compile(r"(?<=[\d>])([.,])(?=[\d<])"), r" @\1@ "),
    (re.compile(r"(?<=\d)–(?=\d)"), " – "),
    (re.compile(r"(?<![@\s])-(?![@\s])"), " @-@ "),
    (re.compile(r"(?<!@)([\",;:!?%()\[\]$£])(?!@)"), r" \1 "),
    (re.compile(r"(?<=\w)'(?=\w)"), " '"),
    (re.compile(r"(?<=s)'(?!\w)"), " '"),
    (re.compile(r"(?<!\S)(\S*[^\s.])\.(?=\s|$)"), _part_dot),
    (re.compile(r" +"), " "),
    (re.compile(r"^ | $"), ""),
]


class Style(NamedTuple):
    """A style of tokenised text.

    Attributes:
        text: rewrites a line.
        line_words: the words that the end of a line counts for.
    """

    text: Callable[[str], str]
    line_words: int


STYLES = {
    "": Style(str, 0),
    "wikitext": Style(join_wikitext, 1),
}  # WikiText counts an <eos> per line


def check_style(detokenise: str) -> None:
    """Raises UserError if there is no such style."""
    if detokenise not in STYLES:
        raise UserError(f"detokenise={detokenise!r}: choose one of {', '.join(map(repr, STYLES))}")
