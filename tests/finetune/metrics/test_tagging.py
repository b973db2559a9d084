"""Entities count as seqeval counts them, and tags as they are."""

import hypothesis
import pytest
from hypothesis import strategies as st

from finetune.metrics import tagging
from pretrain.runtime.errors import UserError

MODES = {None: "OBIES", "iob2": "OBI", "iobes": "OBIES", "bilou": "OBILU", "bmes": "OBMES"}
THEIRS = {"iob2": "IOB2", "iobes": "IOBES", "bmes": "IOBES", "bilou": "BILOU"}
IOBES = {"M": "I"}


@st.composite
def taggings(draw, letters):
    """Sentences and two taggings of each, sound or not."""
    tags = st.sampled_from([x if x == "O" else f"{x}-{y}" for x in letters for y in ("A", "B-2")])
    lengths = draw(st.lists(st.integers(1, 7), min_size=1, max_size=3))
    return [[draw(st.lists(tags, min_size=n, max_size=n)) for n in lengths] for _ in range(2)]


@pytest.mark.parametrize("scheme", MODES)
def test_any_tagging_scores_what_seqeval_says(scheme):
    seqeval = pytest.importorskip("seqeval.metrics")
    theirs = {}
    if scheme:
        kinds = pytest.importorskip("seqeval.scheme")
        theirs = {"mode": "strict", "scheme": getattr(kinds, THEIRS[scheme])}

    @hypothesis.settings(max_examples=120, deadline=None)
    @hypothesis.given(taggings(MODES[scheme]))
    def agree(pair):
        guess, gold = pair
        renamed = [
            [[IOBES.get(tag[0], tag[0]) + tag[1:] for tag in tags] for tags in x]
            for x in (gold, guess)
        ]
        found = tagging.entity_scores(guess, gold, scheme)
        counts = tagging.entity_counts(guess, gold, scheme)
        options = {"output_dict": True, "zero_division": 0, **theirs}
        each = seqeval.classification_report(*renamed, **options) if counts else {}
        micro, macro = each.pop("micro avg", {}), each.pop("macro avg", {"f1-score": 0})
        each.pop("weighted avg", None)
        assert found["precision"] == pytest.approx(micro.get("precision", 0))
        assert found["recall"] == pytest.approx(micro.get("recall", 0))
        assert found["f1"] == pytest.approx(micro.get("f1-score", 0))
        assert found["macro_f1"] == pytest.approx(macro["f1-score"])
        assert {name: (c.precision, c.recall, c.actual) for name, c in counts.items()} == {
            name: pytest.approx((row["precision"], row["recall"], row["support"]))
            for name, row in each.items()
        }

    agree()


def test_a_stray_inside_counts_leniently_and_not_strictly():
    guess, gold = [["I-PER", "I-PER", "O", "B-LOC"]], [["B-PER", "I-PER", "O", "B-LOC"]]
    assert tagging.entity_scores(guess, gold)["f1"] == 1
    strict = tagging.entity_scores(guess, gold, "iob2")
    assert strict["precision"] == 1
    assert strict["recall"] == 0.5


def test_token_accuracy_is_over_words_not_sentences():
    assert tagging.token_accuracy([["DT", "NN", "VB"], ["NN"]], [["DT", "NN", "NN"], ["VB"]]) == 0.5


@pytest.mark.parametrize(
    ("guess", "gold", "message"),
    [
        ([["O"]], [["O"], ["O"]], "1 predictions for 2"),
        ([], [], "nothing to score"),
        ([["O"], ["O"]], [["O"], ["O", "O"]], "sentence 1: 1 tags for 2 words"),
        ([["NN"]], [["O"]], "tag 'NN': a scheme has O, B-TYPE"),
    ],
)
def test_unusable_lists_are_refused(guess, gold, message):
    with pytest.raises(UserError, match=message):
        tagging.entity_scores(guess, gold)
