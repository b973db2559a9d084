"""Sentences of running text, as pieces that say what they open: a sentence, a paragraph, more."""

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
    """A sentence, or a part of an endless one (then the later parts are CONTINUED)."""

    text: str
    opens: int
    words: int  # of the original text; exact for all the pieces of a document together
    bytes: int


# Possessive, and not tried inside a run of marks: time stays linear on any text.
END = re.compile(r"""(?<![.!?])[.!?]++["')\]”’]*+\s++(?=["'(\[“‘]*+(\w))""")
TITLES = "mr mrs ms dr prof rev hon gen col maj capt lt sgt sen rep gov pres messrs st mt ft"
OTHERS = "no nos vol art sec ch fig pp vs cf jr sr inc co corp ltd dept est approx al viz"
MONTHS = "jan feb mar apr jun jul aug sep sept oct nov dec"
NEVER_LAST = frozenset(TITLES.split())  # a name follows, capital or not
SELDOM_LAST = frozenset((OTHERS + " " + MONTHS).split())  # a number or a small letter follows


def pieces(
    lines: Iterable[str], documents: str, sentences: str, detokenise: str = ""
) -> Iterator[Piece]:
    """Lines (`text_files.lines`) to pieces.

    documents: "file", where blank lines part paragraphs, or "blank", where they part documents.
    sentences: "split" finds them by rule, "line" takes each line for one, "whole" likewise but
        the text stays exactly as it is, with its line ends (a last line without one gets it)
        and, in files, its blank lines.
    detokenise: what is done to lines before, see there; words and bytes are of the lines as given.
    """
    gap, cut, style = GAPS[documents], CUTS[sentences], detokenisers.STYLES[detokenise]
    parts = _nowhere if (documents, sentences) == ("file", "whole") else str.isspace
    opens = DOCUMENT
    for blank, paragraph in itertools.groupby(lines, key=parts):
        if blank:
            opens = max(opens, gap)
            continue
        tally = Tally(style)
        for text, begins in cut(tally.read(paragraph)):
            yield Piece(text, max(opens, begins) if begins else CONTINUED, *tally.take())
            opens = SENTENCE


def _nowhere(_: str) -> bool:
    return False


class Tally:
    """Passes lines on in a style, and counts the words and bytes that they had before."""

    def __init__(self, style: detokenisers.Style):
        self.style, self.words, self.bytes = style, 0, 0

    def read(self, lines: Iterable[str]) -> Iterator[str]:
        """Parts of an over-long line stay as they are: a style is for whole lines."""
        before = "\n"
        for line in lines:
            goes_on = not before.isspace() and not line[0].isspace()  # a word cut in two
            self.words += len(line.split()) - goes_on + self.style.line_words * line.count("\n")
            self.bytes += len(line.encode())
            yield self.style.text(line) if before == "\n" == line[-1] else line
            before = line[-1]

    def take(self) -> tuple[int, int]:
        """(words, bytes) since this was last asked."""
        taken = self.words, self.bytes
        self.words = self.bytes = 0
        return taken


def check(documents: str, sentences: str, detokenise: str = "") -> None:
    """Raises UserError if `pieces` does not know one of them."""
    detokenisers.check(detokenise)
    for key, value, known in (("documents", documents, GAPS), ("sentences", sentences, CUTS)):
        if value not in known:
            raise UserError(f"{key}={value!r}: choose one of {', '.join(map(repr, known))}")


def split(lines: Iterable[str]) -> Iterator[tuple[str, bool]]:
    """(text, whether a sentence begins with it) of one paragraph, in bounded memory."""
    held, begins = "", True
    for line in lines:
        held += line
        if len(held) >= LONGEST:
            *done, held = cut(held)
            for sentence in done:
                yield sentence, begins
                begins = True
        if len(held) >= LONGEST:
            yield held, begins
            held, begins = "", False
    yield from ((sentence, begins or i > 0) for i, sentence in enumerate(cut(held)))


def ready(lines: Iterable[str]) -> Iterator[tuple[str, bool]]:
    """A sentence per line; the later parts of an over-long line begin none."""
    begins = True
    for line in lines:
        yield line, begins
        begins = line.endswith("\n")


def whole(lines: Iterable[str]) -> Iterator[tuple[str, int]]:
    """A line each, and before it the white space from the end of the line before.

    There every byte-level tokenizer ends a token anyway (none goes on from a letter or a mark to
    white space), so that the tokens of the pieces are those of the text.  The later parts of an
    over-long line are cut likewise, within a word only if it is over-long itself.
    """
    held, level = "", SENTENCE
    for line in lines:
        text = line.rstrip(string.whitespace)
        if (text and not text[-1].isspace()) or len(held) > LONGEST:
            yield held + text, level or min(held.count("\n"), PARAGRAPH)
            held, level = line[len(text) :], CONTINUED
        else:
            held += line
    if level == CONTINUED or not held.isspace():
        yield held, level


def cut(text: str) -> list[str]:
    """The sentences of a paragraph: cut after . ! ? before a capital, but not after "Mr."."""
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
    """The letters just before the mark: "S" of "(U.S."; all that matter are short."""
    before = match.string[max(0, match.start() - 10) : match.start()]
    return re.split(r"[^\w]", before)[-1]


GAPS = {"file": PARAGRAPH, "blank": DOCUMENT}
Cut = Callable[[Iterable[str]], Iterator[tuple[str, int]]]
CUTS: dict[str, Cut] = {"split": split, "line": ready, "whole": whole}
