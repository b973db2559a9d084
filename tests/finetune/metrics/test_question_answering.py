"""Answers score what the official scripts of SQuAD print for them."""

import math

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

from finetune.metrics import question_answering
from pretrain.runtime.errors import UserError

FIRST = [  # predictions and answers, in the ways of SQuAD 1.1
    ("the Norman conquest!", ["Norman Conquest", "Conquest of England"]),
    ("in the 10th and 11th centuries", ["10th and 11th centuries", "11th"]),
    ("a", ["the"]),
    ("Ragnar Rolló", ["Rollo"]),
    ("U.S.-born", ["USborn"]),
    ("“The” king", ["king"]),
    ("1 066", ["1066", "in 1 066 AD"]),
    (None, ["France"]),
]
SECOND = [  # and of SQuAD 2.0, with probabilities of no answer
    ("the Norman conquest!", ["Norman Conquest"], 0.1),
    ("10th and 11th centuries", ["in the 11th century", "11th and 12th centuries"], 0.2),
    ("", ["Rollo"], 0.9),
    ("France", [], 0.3),
    ("", [], 0.95),
    ("England", [], 0.6),
    ("Denmark or Iceland", ["Denmark, Iceland", "Norway"], 0.7),
    ("a", ["the"], 0.5),
]
BEST = {"best_exact": 50.0, "best_exact_thresh": 0.1, "best_f1": 59.375, "best_f1_thresh": 0.2}
HAS_ANS = {"HasAns_exact": 40.0, "HasAns_total": 5}
PRINTED = {  # by evaluate-v2.0.py for SECOND, with --na-prob-thresh
    1.0: {"exact": 37.5, "f1": 56.875, "total": 8, "HasAns_f1": 71.0}
    | {"NoAns_exact": 100 / 3, "NoAns_f1": 100 / 3, "NoAns_total": 3, **HAS_ANS, **BEST},
    0.55: {"exact": 50.0, "f1": 59.375, "total": 8, "HasAns_f1": 55.0}
    | {"NoAns_exact": 200 / 3, "NoAns_f1": 200 / 3, "NoAns_total": 3, **HAS_ANS, **BEST},
}


def columns(rows):
    return map(list, zip(*rows, strict=True))


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("The  cat's\ta hat, an\u00a0owl.", "cats hat owl"),
        ("theatre and banana", "theatre and banana"),
        ("a-b the-end", "ab theend"),  # punctuation goes before articles do
        ("“The” «Café»", "“ ” «café»"),  # articles go, other scripts' quotes stay
        ("ÀÉ ﬁ １９", "àé ﬁ １９"),  # compatibility forms stay too
        ("Å", "å"),  # composed
        ("A\u030a", "\u030a"),  # a letter and its ring are "a", an article, and a ring
        ("我们 的。", "我们 的。"),
        ("_under_ $5", "under 5"),
        ("the a an", ""),
    ],
)
def test_normalising_drops_case_ascii_punctuation_and_articles(text, plain):
    assert question_answering.normalise(text) == plain


def test_repeated_words_count_as_often_as_both_have_them():
    assert question_answering.overlap("no no no yes", "no no maybe") == pytest.approx(
        2 * 2 / (4 + 3)
    )
    assert question_answering.overlap("the", "the") == 0


def test_squad_1_is_what_the_official_script_prints():
    found = question_answering.squad1(*columns(FIRST))
    assert found == pytest.approx({"exact_match": 37.5, "f1": 50.69444444444444}, rel=1e-12)


@pytest.mark.parametrize("threshold", PRINTED)
def test_squad_2_is_what_the_official_script_prints(threshold):
    found = question_answering.squad2(*columns(SECOND), threshold=threshold)
    assert found == pytest.approx(PRINTED[threshold], rel=1e-12)


def test_without_no_answer_scores_there_is_no_best_threshold():
    guess, gold, _ = columns(SECOND)
    rest = {name: x for name, x in PRINTED[1.0].items() if name not in BEST}
    assert question_answering.squad2(guess, gold) == pytest.approx(rest)
    assert not [
        name for name in question_answering.squad2(["x"], [["x"]]) if name.startswith("NoAns")
    ]


@hypothesis.settings(max_examples=60, deadline=None)
@hypothesis.given(st.lists(st.tuples(*[st.booleans()] * 3), min_size=1, max_size=8), st.randoms())
def test_no_threshold_does_better_than_the_best_one(rows, random):
    """Tried one by one: below all, and at each; the best is attained where it says."""
    guess = ["right" if hit else "wrong" * given for hit, given, _ in rows]
    gold = [["right"] if answerable else [] for _, _, answerable in rows]
    logits = random.sample(range(-49, 50, 2), len(rows))
    best = question_answering.squad2(guess, gold, logits)
    exact = {
        t: question_answering.squad2(guess, gold, logits, t)["exact"] for t in (-math.inf, *logits)
    }
    assert best["best_exact"] == pytest.approx(max(exact.values()))
    attained = question_answering.squad2(guess, gold, logits, best["best_exact_thresh"])["exact"]
    assert attained == pytest.approx(best["best_exact"])


def test_equal_no_answer_scores_separate_in_order():
    """As in the official script, though no threshold can part them."""
    right, wrong = ([("x", gold, na) for na in (0.3, 0.5)] for gold in (["x"], []))
    first = question_answering.squad2(*columns((right + wrong) * 32))
    assert (first["best_exact"], first["best_exact_thresh"]) == (100 * 65 / 128, 0.3)
    last = question_answering.squad2(*columns((wrong + right) * 32))
    assert (last["best_exact"], last["best_exact_thresh"]) == (50, 0)


def test_articles_alone_are_accepted_without_other_answers():
    assert question_answering.squad2([""], [["the"]])["exact"] == 100
    assert question_answering.squad2([""], [["the", "x"]])["exact"] == 0


def test_answering_nothing_has_a_threshold_below_all_scores():
    wrong, none = ["x", "x"], [[], []]
    assert question_answering.squad2(wrong, none, [0.2, 0.7])["best_exact_thresh"] == 0
    found = question_answering.squad2(wrong, none, [-3.0, 2.0])
    assert np.nextafter(found["best_exact_thresh"], 0) == -3
    assert found["best_exact"] == 100


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: question_answering.squad1(["a"], [["a"], ["b"]]),
            "1 predictions for 2 references",
        ),
        (lambda: question_answering.squad1(["a", "b"], [["a"], []]), "question 1 has no answer"),
        (lambda: question_answering.squad2([], []), "nothing to score"),
        (
            lambda: question_answering.squad2(["a"], [[]], [0.1, 0.2]),
            "no_answer: 2 predictions for 1",
        ),
    ],
)
def test_unusable_lists_are_refused(call, message):
    with pytest.raises(UserError, match=message):
        call()
