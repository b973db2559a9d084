"""Tags are checked, read, written and converted by the rules of a scheme."""

import itertools

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

from finetune.metrics import tag_schemes
from finetune.metrics.tag_schemes import Entity
from pretrain.runtime.errors import UserError

KINDS = ("iob1", "iob2", "iobes", "bilou", "bmes")
WORDS = [Entity("X", 0, 1), Entity("X", 1, 3), Entity("Y", 3, 6), Entity("X", 7, 8)]
WRITTEN = {  # WORDS, of nine words, by hand
    "iob1": "I-X B-X I-X I-Y I-Y I-Y O I-X O",
    "iob2": "B-X B-X I-X B-Y I-Y I-Y O B-X O",
    "iobes": "S-X B-X E-X B-Y I-Y E-Y O S-X O",
    "bilou": "U-X B-X L-X B-Y I-Y L-Y O U-X O",
    "bmes": "S-X B-X E-X B-Y M-Y E-Y O S-X O",
}


@st.composite
def entity_lists(draw):
    """A length, and entities that do not overlap in so many words."""
    cuts = draw(st.lists(st.tuples(st.integers(1, 4), st.sampled_from(["", "A", "B-2", None]))))
    ends = list(itertools.accumulate(words for words, _ in cuts))
    found = [
        Entity(type_, end - words, end)
        for (words, type_), end in zip(cuts, ends, strict=True)
        if type_ is not None
    ]
    return (ends or [0])[-1] + draw(st.integers(0, 1)), found


def labels(kind):
    letters = tag_schemes.SCHEMES[kind].written
    return ["O"] + [f"{letter}-{type_}" for letter in letters[1:] for type_ in "XY"]


@pytest.mark.parametrize("kind", KINDS)
def test_entities_are_written_as_by_hand_and_read_back(kind):
    assert " ".join(tag_schemes.to_tags(WORDS, 9, kind)) == WRITTEN[kind]
    assert tag_schemes.entities(WRITTEN[kind].split(), kind) == WORDS


@hypothesis.settings(max_examples=80, deadline=None)
@hypothesis.given(entity_lists(), st.sampled_from(KINDS), st.sampled_from(KINDS))
def test_entities_survive_writing_checking_converting_and_reading(given, source, target):
    length, found = given
    tags = tag_schemes.to_tags(found, length, source)
    assert tag_schemes.illegal(tags, source) == []
    converted = tag_schemes.convert(tags, source, target)
    assert converted == tag_schemes.to_tags(found, length, target)
    assert tag_schemes.entities(converted) == tag_schemes.entities(converted, target) == found


@pytest.mark.parametrize("kind", KINDS)
def test_legal_sequences_are_those_that_entities_are_written_as(kind):
    """All sequences of up to three tags, against all that can be written."""
    for length in range(4):
        spans = [
            Entity(t, a, b) for t in "XY" for a in range(length) for b in range(a + 1, length + 1)
        ]
        written = set()
        for size in range(length + 1):
            for found in itertools.combinations(spans, size):
                if all(
                    a.end <= b.start or b.end <= a.start
                    for a, b in itertools.combinations(found, 2)
                ):
                    written.add(tuple(tag_schemes.to_tags(found, length, kind)))
        every = set(itertools.product(labels(kind), repeat=length))
        assert {tags for tags in every if not tag_schemes.illegal(tags, kind)} == written


@pytest.mark.parametrize("kind", KINDS)
def test_allowed_transitions_are_exactly_the_legal_sequences(kind):
    names = labels(kind)
    start_C, end_C, transition_CC = tag_schemes.allowed_transitions(names, kind)
    assert start_C.dtype == end_C.dtype == transition_CC.dtype == np.bool_
    for path in itertools.product(range(len(names)), repeat=3):
        steps = [transition_CC[a, b] for a, b in itertools.pairwise(path)]
        walks = bool(start_C[path[0]] and all(steps) and end_C[path[-1]])
        assert walks == (not tag_schemes.illegal([names[i] for i in path], kind))


@pytest.mark.parametrize(
    ("tags", "found"),
    [  # as conlleval has it: a run of a type is an entity, however it begins and ends
        ("I-X I-X O", [("X", 0, 2)]),
        ("O I-X I-Y", [("X", 1, 2), ("Y", 2, 3)]),
        ("B-X I-Y", [("X", 0, 1), ("Y", 1, 2)]),
        ("I-X B-X", [("X", 0, 1), ("X", 1, 2)]),
        ("B-X E-X E-X", [("X", 0, 2), ("X", 2, 3)]),
        ("B-X I-X", [("X", 0, 2)]),
        ("S-X I-X", [("X", 0, 1), ("X", 1, 2)]),
        ("B I O B", [("", 0, 2), ("", 3, 4)]),
        ("", []),
    ],
)
def test_unsound_tags_are_read_leniently(tags, found):
    assert tag_schemes.entities(tags.split()) == found


@pytest.mark.parametrize(
    ("tags", "kind", "message"),
    [
        ("O I-X", "iob2", "word 2: I-X may not follow O"),
        ("I-X", "bio", "word 1: I-X may not follow the start"),
        ("B-X I-Y", "iob2", "word 2: I-Y may not follow B-X"),
        ("O B-X", "iob1", "word 2: B-X may not follow O"),
        ("B-X O", "bilou", "word 2: O may not follow B-X"),
        ("O B-X", "bioul", "word 2: the end may not follow B-X"),
        ("S-X M-X E-X", "bmes", "word 2: M-X may not follow S-X"),
    ],
)
def test_a_broken_rule_is_named(tags, kind, message):
    assert tag_schemes.illegal(tags.split(), kind)[0] == message
    with pytest.raises(UserError, match=rf"dev\.txt, line 7, {message} in {kind}"):
        tag_schemes.convert(tags.split(), kind, "iobes", "dev.txt, line 7")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: tag_schemes.entities(["E-X"], "iob2"), "tag 'E-X': iob2 has O, B-TYPE, I-TYPE"),
        (lambda: tag_schemes.entities(["O-X"]), "tag 'O-X'"),
        (lambda: tag_schemes.entities(["Bx"]), "tag 'Bx'"),
        (lambda: tag_schemes.entities([""]), "tag ''"),
        (lambda: tag_schemes.allowed_transitions(["O"], "iob3"), "scheme='iob3': choose one"),
        (lambda: tag_schemes.to_tags([Entity("X", 0, 2), Entity("Y", 1, 3)], 3, "bio"), "overlaps"),
        (lambda: tag_schemes.to_tags([Entity("X", 1, 4)], 3, "bio"), "leaves the 3 words"),
    ],
)
def test_bad_tags_and_schemes_are_refused(call, message):
    with pytest.raises(UserError, match=message):
        call()
