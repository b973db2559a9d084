"""Schemes of tags: entities written as one tag per word (IOB1, IOB2, IOBES, BILOU, BMES).

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
    """The words from `start` up to, not including, `end` are one thing of this type."""

    type: str
    start: int
    end: int


class Tag(NamedTuple):
    """A tag as read: one of `LETTERS`, and the type, "" where there is none."""

    letter: str
    type: str


class Scheme(NamedTuple):
    """`written`: its own letters, for those of `LETTERS`; `follows`: after a letter, the letters
    that may come with any type, and those with the same type only; `spell`: the letters of so many
    words, given whether an entity of the same type ends right before."""

    written: str
    follows: dict[str, tuple[str, str]]
    spell: Callable[[int, bool], str]


OUTSIDE = Tag("O", "")  # also stands before the first and after the last word


def _spell_iob1(words: int, touches: bool) -> str:
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
READ = {
    own: letter for s in SCHEMES.values() for own, letter in zip(s.written, LETTERS, strict=False)
}


def named(name: str) -> Scheme:
    """Raises UserError if there is no such scheme."""
    if name.lower() not in SCHEMES:
        raise UserError(f"scheme={name!r}: choose one of {', '.join(SCHEMES)}")
    return SCHEMES[name.lower()]


@functools.cache
def read(tag: str, scheme: str | None = None) -> Tag:
    """What a tag says; without a scheme, in the letters of any.

    Raises:
        UserError: no tag, or none of this scheme.
    """
    written = named(scheme).written if scheme else "".join(READ)
    letter, _, type_ = tag.partition("-")
    if len(letter) != 1 or letter not in written or (letter == "O") != (tag == "O"):
        rest = ", ".join(f"{own}-TYPE" for own in written if own != "O")
        raise UserError(f"tag {tag!r}: {scheme or 'a scheme'} has O, {rest}")
    return Tag(READ[letter], type_)


def illegal(tags: Sequence[str], scheme: str) -> list[str]:
    """Each place that breaks the scheme's rules, words counted from 1; [] if it is sound."""
    follows = named(scheme).follows
    each = [OUTSIDE, *(read(tag, scheme) for tag in tags), OUTSIDE]
    shown = ["the start", *tags, "the end"]
    return [
        f"word {min(i + 1, len(tags))}: {after} may not follow {before}"
        for i, (before, after) in enumerate(itertools.pairwise(shown))
        if not _may_follow(follows, each[i], each[i + 1])
    ]


def check(tags: Sequence[str], scheme: str, where: str = "tags") -> None:
    """Raises UserError, naming `where` and the word, if the sequence breaks the scheme's rules."""
    if found := illegal(tags, scheme):
        raise UserError(f"{where}, {found[0]} in {scheme}")


def allowed(labels: Sequence[str], scheme: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Where a decoder may go: start_C, end_C and transition_CC (from row to column), bool."""
    follows, each = named(scheme).follows, [read(label, scheme) for label in labels]
    start_C = np.array([_may_follow(follows, OUTSIDE, tag) for tag in each], bool)
    end_C = np.array([_may_follow(follows, tag, OUTSIDE) for tag in each], bool)
    transition_CC = np.array([[_may_follow(follows, a, b) for b in each] for a in each], bool)
    return start_C, end_C, transition_CC.reshape(len(each), len(each))


def _may_follow(follows: dict[str, tuple[str, str]], before: Tag, after: Tag) -> bool:
    any_type, same_type = follows[before.letter]
    return after.letter in any_type or (after.letter in same_type and after.type == before.type)


def entities(tags: Sequence[str], scheme: str | None = None) -> list[Entity]:
    """The entities of one sentence, in order.

    Without a scheme they are read leniently, as conlleval reads them: a run of one type is an
    entity, however it begins and ends.  With one, only those count that it would write so.

    Raises:
        UserError: a tag is none of the scheme.
    """
    found, before, start = [], OUTSIDE, 0
    for i, tag in enumerate([*(read(tag, scheme) for tag in tags), OUTSIDE]):
        if before.letter in "OES" or tag.letter in "OBS" or tag.type != before.type:
            if before.letter != "O":
                found.append(Entity(before.type, start, i))
            start = i
        before = tag
    if scheme is None:
        return found
    spelt = to_tags(found, len(tags), scheme)
    return [e for e in found if spelt[e.start : e.end] == list(tags[e.start : e.end])]


def to_tags(found: Iterable[Entity], length: int, scheme: str) -> list[str]:
    """The tags of a sentence of `length` words with these entities.

    Raises:
        UserError: entities overlap, are empty or lie outside the sentence.
    """
    own = dict(zip(LETTERS, named(scheme).written, strict=False))
    tags, before = ["O"] * length, Entity("", 0, 0)
    for entity in sorted(found, key=lambda e: e.start):
        if not before.end <= entity.start < entity.end <= length:
            raise UserError(f"{entity} overlaps {before} or leaves the {length} words")
        touches = entity.start == before.end and entity.type == before.type and before.end > 0
        letters = named(scheme).spell(entity.end - entity.start, touches)
        suffix = f"-{entity.type}" if entity.type else ""
        tags[entity.start : entity.end] = [own[letter] + suffix for letter in letters]
        before = entity
    return tags


def convert(tags: Sequence[str], source: str, target: str, where: str = "tags") -> list[str]:
    """The same entities in another scheme.

    Raises:
        UserError: the tags break the source's rules; names `where` and the word.
    """
    check(tags, source, where)
    return to_tags(entities(tags), len(tags), target)
