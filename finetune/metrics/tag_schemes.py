"""Reads and writes entities as one tag per word, in a scheme: IOB1, IOB2, IOBES, BILOU, BMES.

A tag is a letter and a type, "B-PER"; "O" stands outside, and a type may be missing ("B").  The
letters are those of IOBES; BILOU writes L and U for E and S, BMES writes M for I.
"""

import functools
import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from pretrain.runtime.errors import UserError

LETTERS = "OBIES"


class Entity(NamedTuple):
    """An entity of a type: the words from `start` up to, not including, `end`."""

    type: str
    start: int
    end: int


class Tag(NamedTuple):
    """A parsed tag: one of `LETTERS`, and the type, "" where there is none."""

    letter: str
    type: str


class Scheme(NamedTuple):
    """The rules of a scheme.

    Attributes:
        written: its letters, in the order of `LETTERS`.
        follows: by letter, those that may follow with any type, and with the same type only.
        spell: maps a number of words, and whether an entity of the same type ends right before,
            to the letters of an entity.
    """

    written: str
    follows: dict[str, tuple[str, str]]
    spell: Callable[[int, bool], str]


OUTSIDE = Tag("O", "")  # also stands before the first and after the last word


def _spell_iob1(words: int, touches: bool) -> str:
    # Only a B can separate two entities of one type.
    return ("B" if touches else "I") + "I" * (words - 1)


def _spell_iob2(words: int, touches: bool) -> str:
    return "B" + "I" * (words - 1)


def _spell_iobes(words: int, touches: bool) -> str:
    return "S" if words == 1 else "B" + "I" * (words - 2) + "E"


IOB1 = {"O": ("OI", "")} | dict.fromkeys("BI", ("OI", "B"))
IOB2 = {"O": ("OB", "")} | dict.fromkeys("BI", ("OB", "I"))
IOBES = dict.fromkeys("OES", ("OBS", "")) | dict.fromkeys("BI", ("", "IE"))
SCHEMES = {
    "iob1": Scheme("OBI", IOB1, _spell_iob1),
    "iob2": Scheme("OBI", IOB2, _spell_iob2),
    "iobes": Scheme("OBIES", IOBES, _spell_iobes),
    "bilou": Scheme("OBILU", IOBES, _spell_iobes),
    "bmes": Scheme("OBMES", IOBES, _spell_iobes),
}
SCHEMES |= {"bio": SCHEMES["iob2"], "bioul": SCHEMES["bilou"], "bioes": SCHEMES["iobes"]}
# A letter means the same in every scheme that has it.
LETTER_OF = {
    written: letter
    for scheme in SCHEMES.values()
    for written, letter in zip(scheme.written, LETTERS, strict=False)
}


def get_scheme(name: str) -> Scheme:
    """Returns the scheme of this name; UserError if there is none."""
    if name.lower() not in SCHEMES:
        raise UserError(f"scheme={name!r}: choose one of {', '.join(SCHEMES)}")
    return SCHEMES[name.lower()]


@functools.cache  # a corpus has few different tags
def parse_tag(tag: str, scheme: str | None = None) -> Tag:
    """Parses a tag of a scheme; of any scheme, if none is given.

    Raises:
        UserError: it is no tag, or none of this scheme.
    """
    written = get_scheme(scheme).written if scheme else "".join(LETTER_OF)
    letter, _, type_ = tag.partition("-")
    if len(letter) != 1 or letter not in written or (letter == "O") != (tag == "O"):
        rest = ", ".join(f"{letter}-TYPE" for letter in written if letter != "O")
        raise UserError(f"tag {tag!r}: {scheme or 'a scheme'} has O, {rest}")
    return Tag(LETTER_OF[letter], type_)


def illegal(tags: Sequence[str], scheme: str) -> list[str]:
    """Returns a message for each tag that breaks the scheme's rules, words counted from 1."""
    follows = get_scheme(scheme).follows
    parsed = [OUTSIDE, *(parse_tag(tag, scheme) for tag in tags), OUTSIDE]
    names = ["the start", *tags, "the end"]
    return [
        f"word {min(i + 1, len(tags))}: {after} may not follow {before}"
        for i, (before, after) in enumerate(itertools.pairwise(names))
        if not _may_follow(follows, parsed[i], parsed[i + 1])
    ]


def check(tags: Sequence[str], scheme: str, where: str = "tags") -> None:
    """Raises UserError, naming `where` and the word, if the sequence breaks the scheme's rules."""
    if violations := illegal(tags, scheme):
        raise UserError(f"{where}, {violations[0]} in {scheme}")


def allowed_transitions(
    labels: Sequence[str], scheme: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns the transitions that a decoder may take.

    Returns:
        start_C, end_C and transition_CC (from row to column), bool.
    """
    follows, parsed = get_scheme(scheme).follows, [parse_tag(label, scheme) for label in labels]
    start_C = np.array([_may_follow(follows, OUTSIDE, tag) for tag in parsed], bool)
    end_C = np.array([_may_follow(follows, tag, OUTSIDE) for tag in parsed], bool)
    transition_CC = np.array([[_may_follow(follows, a, b) for b in parsed] for a in parsed], bool)
    return start_C, end_C, transition_CC.reshape(len(parsed), len(parsed))  # also of no labels


def _may_follow(follows: dict[str, tuple[str, str]], before: Tag, after: Tag) -> bool:
    any_type, same_type = follows[before.letter]
    return after.letter in any_type or (after.letter in same_type and after.type == before.type)


def entities(tags: Sequence[str], scheme: str | None = None) -> list[Entity]:
    """Returns the entities of one sentence, in order.

    Without a scheme tags are read leniently, as conlleval does: a run of one type is an entity,
    however it begins and ends.  With one, only entities that it would write so are returned.

    Raises:
        UserError: a tag is none of the scheme.
    """
    runs, before, start = [], OUTSIDE, 0
    for i, tag in enumerate([*(parse_tag(tag, scheme) for tag in tags), OUTSIDE]):
        # O, E and S end what they are in; O, B and S begin anew.
        if before.letter in "OES" or tag.letter in "OBS" or tag.type != before.type:
            if before.letter != "O":
                runs.append(Entity(before.type, start, i))
            start = i
        before = tag
    if scheme is None:
        return runs
    # Well-formed is what writing the entity again would give.
    spelt = to_tags(runs, len(tags), scheme)
    return [e for e in runs if spelt[e.start : e.end] == list(tags[e.start : e.end])]


def to_tags(spans: Iterable[Entity], length: int, scheme: str) -> list[str]:
    """Returns the tags of a sentence of `length` words with these entities.

    Raises:
        UserError: entities overlap, are empty or lie outside the sentence.
    """
    written = dict(zip(LETTERS, get_scheme(scheme).written, strict=False))
    tags, before = ["O"] * length, Entity("", 0, 0)
    for entity in sorted(spans, key=lambda e: e.start):
        if not before.end <= entity.start < entity.end <= length:
            raise UserError(f"{entity} overlaps {before} or leaves the {length} words")
        # Only IOB1 asks: there an entity begins with B only after one of its type.
        touches = entity.start == before.end and entity.type == before.type and before.end > 0
        letters = get_scheme(scheme).spell(entity.end - entity.start, touches)
        suffix = f"-{entity.type}" if entity.type else ""
        tags[entity.start : entity.end] = [written[letter] + suffix for letter in letters]
        before = entity
    return tags


def convert(tags: Sequence[str], source: str, target: str, where: str = "tags") -> list[str]:
    """Converts tags to another scheme, with the same entities.

    Raises:
        UserError: the tags break the source's rules; it names `where` and the word.
    """
    check(tags, source, where)
    return to_tags(entities(tags), len(tags), target)
