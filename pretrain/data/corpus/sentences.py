"""Cuts text into pieces, each of which opens a sentence, a paragraph or a document."""

import itertools
import re
import string
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from pretrain.data.corpus import detokenize as detokenisers
from pretrain.data.corpus.text_files import LONGEST
from pretrain.runtime.errors import UserError

CONTINUED, SENTENCE, PARAGRAPH, DOCUMENT = range(4)


class Piece(NamedTuple):
    """A sentence, or a part of an endless one, whose later parts are CONTINUED.

    Attributes:
        words, bytes: of the original text; exact for all the pieces of a document together.
    """

    text: str
    opens: int
    words: int
    bytes: int


# Possessive, and not tried inside a run of marks: time stays linear on any text.
END = re.compile(r"""(?<![.!?])[.!?]++["')\]”’]*+\s++(?=["'(\[“‘]*+(\w))""")
TITLES = "mr mrs ms dr prof rev hon gen col maj capt lt sgt sen rep gov pres messrs st mt ft"
OTHERS = "no nos vol art sec ch fig pp vs cf jr sr inc co corp ltd dept est approx al viz"
MONTHS = "jan feb mar apr jun jul aug sep sept oct nov dec"
NEVER_LAST = frozenset(TITLES.split())  # a name follows, capital or not
SELDOM_LAST = frozenset((OTHERS + " " + MONTHS).split())  # a number or a small letter follows


def cut_pieces(
    lines: Iterable[str], documents: str, sentences: str, detokenise: str = ""
) -> Iterator[Piece]:
    """Cuts a document into pieces.

    Args:
        lines: its lines, see `text_files.split_lines`.
        documents: "file", where blank lines part paragraphs, or "blank", where they part documents.
        sentences: "split" finds them by rule, "line" takes each line for one, "every_line" a blank
            one too, which is a sentence without words.  "whole" takes lines, too, but the text
            stays exactly as it is, with its line ends (a last line without one gets it) and, in
            files, its blank lines.
        detokenise: a style of `detokenize.STYLES`; words and bytes are counted before it.
    """
    gap, cut, style = GAPS[documents], CUTS[sentences], detokenisers.STYLES[detokenise]
    # Text that stays as it is has no paragraphs: its blank lines are part of it.
    keeps_blank_lines = documents == "file" and sentences in ("whole", "every_line")
    parts = _is_never if keeps_blank_lines else str.isspace
    opens = DOCUMENT
    for blank, paragraph in itertools.groupby(lines, key=parts):
        if blank:
            opens = max(opens, gap)
            continue
        tally = Tally(style)
        for text, begins in cut(tally.read(paragraph)):
            yield Piece(text, max(opens, begins) if begins else CONTINUED, *tally.take())
            opens = SENTENCE


def _is_never(_: str) -> bool:
    return False


class Tally:
    """Passes lines on in a style, and counts the words and bytes that they had before."""

    def __init__(self, style: detokenisers.Style):
        self.style, self.words, self.bytes = style, 0, 0

    def read(self, lines: Iterable[str]) -> Iterator[str]:
        """Passes lines on; parts of an over-long line stay, as a style is for whole lines."""
        before = "\n"
        for line in lines:
            goes_on = not before.isspace() and not line[0].isspace()  # a word cut in two
            self.words += len(line.split()) - goes_on + self.style.line_words * line.count("\n")
            self.bytes += len(line.encode())
            yield self.style.text(line) if before == "\n" == line[-1] else line
            before = line[-1]

    def take(self) -> tuple[int, int]:
        """Returns (words, bytes) since the last call."""
        counts = self.words, self.bytes
        self.words = self.bytes = 0
        return counts


def check_options(documents: str, sentences: str, detokenise: str = "") -> None:
    """Raises UserError if `cut_pieces` does not know one of them."""
    detokenisers.check_style(detokenise)
    for key, value, choices in (("documents", documents, GAPS), ("sentences", sentences, CUTS)):
        if value not in choices:
            raise UserError(f"{key}={value!r}: choose one of {', '.join(map(repr, choices))}")
    if (documents, sentences) == ("blank", "every_line"):
        raise UserError("sentences='every_line' needs documents='file': blank lines part no others")


def split_by_rule(lines: Iterable[str]) -> Iterator[tuple[str, bool]]:
    """Yields (text, whether it begins a sentence) of one paragraph, in bounded memory."""
    rest, begins = "", True
    for line in lines:
        rest += line
        if len(rest) >= LONGEST:
            *sentences, rest = split_sentences(rest)
            for sentence in sentences:
                yield sentence, begins
                begins = True
        if len(rest) >= LONGEST:  # no end in sight
            yield rest, begins
            rest, begins = "", False
    yield from ((sentence, begins or i > 0) for i, sentence in enumerate(split_sentences(rest)))


def split_by_line(lines: Iterable[str]) -> Iterator[tuple[str, bool]]:
    """Yields a sentence per line; the later parts of an over-long line begin none."""
    begins = True
    for line in lines:
        yield line, begins
        begins = line.endswith("\n")


def split_before_space(lines: Iterable[str]) -> Iterator[tuple[str, int]]:
    """Yields lines, each with the white space from the end of the line before in front."""
    # There every byte-level tokenizer ends a token: none goes on from a letter or a mark to white
    # space.  So the tokens of the pieces are those of the text.  An over-long line is cut likewise,
    # within a word only if the word is over-long itself.
    rest, level = "", SENTENCE
    for line in lines:
        text = line.rstrip(string.whitespace)
        if (text and not text[-1].isspace()) or len(rest) > LONGEST:
            yield rest + text, level or min(rest.count("\n"), PARAGRAPH)
            rest, level = line[len(text) :], CONTINUED
        else:
            rest += line
    if level == CONTINUED or not rest.isspace():
        yield rest, level


def split_sentences(text: str) -> list[str]:
    """Splits a paragraph after . ! ? before a capital, but not after "Mr."."""
    ends = [match.end() for match in END.finditer(text) if _is_end(match)]
    return [text[i:j] for i, j in itertools.pairwise([0, *ends, len(text)]) if i < j]


def _is_end(match: re.Match) -> bool:
    following, word = match[1], _word_before(match)
    if following.islower() or (len(word) == 1 and word.isalpha() and word != "I"):
        return False  # an initial as in J. Smith, or the last letter of U.S.
    if word.lower() in NEVER_LAST:
        return False
    return not (word.lower() in SELDOM_LAST and following.isdigit())


def _word_before(match: re.Match) -> str:
    """Returns the letters just before the mark: "S" of "(U.S."."""
    # Ten characters hold every abbreviation; a longer slice would make time quadratic.
    before = match.string[max(0, match.start() - 10) : match.start()]
    return re.split(r"[^\w]", before)[-1]


GAPS = {"file": PARAGRAPH, "blank": DOCUMENT}
Cut = Callable[[Iterable[str]], Iterator[tuple[str, int]]]
CUTS: dict[str, Cut] = {
    "split": split_by_rule,
    "line": split_by_line,
    "every_line": split_by_line,
    "whole": split_before_space,
}
