"""Labels and numbers are scored as their definitions say."""

import warnings

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

from finetune.metrics import classification
from pretrain.runtime.errors import UserError

PAIRS = st.lists(st.tuples(*[st.sampled_from("abc")] * 2), min_size=1, max_size=12)
few = hypothesis.settings(max_examples=60, deadline=None)


def f1_by_hand(pairs, label):
    correct = sum(a == b == label for a, b in pairs)
    wrong = sum((a == label) + (b == label) for a, b in pairs)
    return 2 * correct / wrong if wrong else 0.0


@few
@hypothesis.given(PAIRS)
def test_label_scores_are_their_definitions(pairs):
    guess, gold = map(list, zip(*pairs, strict=True))
    right = np.mean([a == b for a, b in pairs])
    assert classification.accuracy(guess, gold) == pytest.approx(right)
    assert classification.f1_average(guess, gold, "micro") == pytest.approx(right)
    assert classification.f1(guess, gold, "a") == pytest.approx(f1_by_hand(pairs, "a"))
    seen = [f1_by_hand(pairs, label) for label in {*guess, *gold}]
    assert classification.f1_average(guess, gold) == pytest.approx(np.mean(seen))
    every = [f1_by_hand(pairs, label) for label in "abc"]
    assert classification.f1_average(guess, gold, labels=list("abc")) == pytest.approx(
        np.mean(every)
    )


@few
@hypothesis.given(PAIRS)
def test_matthews_is_the_correlation_of_one_hot_labels(pairs):
    x_NC, y_NC = (
        np.array([[c == label for label in "abc"] for c in side], float)
        for side in zip(*pairs, strict=True)
    )
    x_NC, y_NC = x_NC - x_NC.mean(0), y_NC - y_NC.mean(0)
    below = np.sqrt((x_NC**2).sum() * (y_NC**2).sum())
    expected = (x_NC * y_NC).sum() / below if below > 1e-9 else 0.0
    guess, gold = map(list, zip(*pairs, strict=True))
    assert classification.matthews(guess, gold) == pytest.approx(expected, abs=1e-9)


def test_correlations_are_those_of_numbers_and_of_ranks():
    x, y = [1.0, 2.0, 2.0, 5.0, 9.0], [2.0, 1.0, 3.0, 3.0, 40.0]
    assert classification.pearson(x, y) == pytest.approx(np.corrcoef(x, y)[0, 1])
    ranks = np.corrcoef([1, 2.5, 2.5, 4, 5], [2, 1, 3.5, 3.5, 5])[0, 1]
    assert classification.spearman(x, y) == pytest.approx(ranks)
    assert classification.spearman(x, np.exp(x)) == pytest.approx(1)
    assert classification.pearson(x, np.negative(x)) == pytest.approx(-1)


def test_undefined_scores_are_zero_without_a_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for correlation in (classification.pearson, classification.spearman):
            assert correlation([3.0, 3.0, 3.0], [1.0, 2.0, 3.0]) == 0
            assert correlation([1.0, 2.0], [0.0, 0.0]) == 0
            assert correlation([1.0], [1.0]) == 0
        assert classification.matthews([1, 1, 1], [0, 1, 1]) == 0
        assert classification.matthews(["a"], ["a"]) == 0
        assert classification.f1(["0", "0"], ["0", "0"]) == 0
        assert classification.f1(["0", "0"], ["1", "0"]) == 0
        assert classification.f1_average(["a", "a"], ["a", "b"]) == pytest.approx(1 / 3)


def test_the_highest_score_chooses_and_the_first_of_equals():
    rows = [[0.1, 0.9], [0.3, 0.1, 0.2], [1.0, 1.0], np.array([2.0, 2.0, 3.0])]
    assert classification.choice_accuracy(rows, [1, 0, 0, 2]) == 1
    assert classification.choice_accuracy(rows, [0, 0, 1, 2]) == 0.5


def test_glue_tasks_have_the_scores_of_their_table():
    guess, gold = ["1", "1", "0", "1"], ["1", "0", "0", "1"]
    found = classification.score(classification.GLUE["mrpc"], guess, gold)
    assert found == pytest.approx({"accuracy": 0.75, "f1": 0.8})
    assert classification.score(["f1"], guess, gold, positive="0") == pytest.approx({"f1": 2 / 3})
    assert set(classification.score(classification.GLUE["stsb"], [1.0, 2.0], [1.0, 3.0])) == {
        "pearson",
        "spearman",
    }
    assert classification.score(classification.GLUE["cola"], guess, gold)[
        "matthews"
    ] == pytest.approx(3**-0.5)
    assert {name for names in classification.GLUE.values() for name in names} <= set(
        classification.METRICS
    )


def test_arrays_score_as_lists_do():
    guess, gold = np.array([0, 1, 2, 2]), np.array([0, 2, 2, 2])
    both = [
        classification.score(["accuracy", "macro_f1", "micro_f1", "matthews"], *pair)
        for pair in ((guess, gold), (guess.tolist(), gold.tolist()))
    ]
    assert both[0] == both[1]
    assert classification.f1_average(guess, gold, labels=[0, 2]) == pytest.approx((1 + 0.8) / 2)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: classification.accuracy([1], [1, 2]), "1 predictions for 2 references"),
        (lambda: classification.accuracy([], []), "nothing to score"),
        (lambda: classification.accuracy(["1"], [1]), "strings or numbers, not both"),
        (lambda: classification.f1([1], [1]), "strings or numbers, not both"),
        (lambda: classification.f1_average([1], [1], "weighted"), "average='weighted': choose"),
        (lambda: classification.pearson([1.0, np.nan], [1.0, 2.0]), "example 1 has nan for 2.0"),
        (lambda: classification.choice_accuracy([[0.1, 0.2]], []), "1 predictions for 0"),
        (lambda: classification.score(["bleu"], [1], [1]), "metric 'bleu': choose from accuracy"),
    ],
)
def test_unusable_lists_are_refused(call, message):
    with pytest.raises(UserError, match=message):
        call()
