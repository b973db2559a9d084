"""A tag for every word, as brute force over its emissions would tell it."""

import itertools
import json

import jax
import numpy as np
import pytest

from finetune.metrics import tag_schemes
from finetune.tasks import tag
from modules.heads.crf import Chain
from pretrain.runtime.errors import UserError
from tests.modules.heads import test_crf
from tests.support import tagging_data
from tests.support.compiler import quick_jit
from tests.support.tagging_data import EXAMPLES, LABELS

TRUTH = [x["labels"] for x in EXAMPLES]


def as_outputs(made, tags, examples=EXAMPLES):
    """What a task would give that told these tags."""
    arrays = made.arrays(examples)
    tag_BL = np.full(arrays["word_BL"].shape, 1)
    tag_BL[arrays["word_BL"]] = [made.labels.index(tag) for each in tags for tag in each]
    return {"tag_BL": tag_BL, "word_BL": arrays["word_BL"]}


# --- the host's part -----------------------------------------------------------------------------


@pytest.mark.parametrize("L", [12, 40])
def test_perfect_tags_score_1_and_are_written_as_the_file_has_them(L):
    made = tagging_data.form("bert", L, convert_to="bilou")
    told = [tag_schemes.convert(tags, "iob2", "bilou") for tags in TRUTH]
    outputs = as_outputs(made, told)
    assert made.scores(EXAMPLES, outputs) == {"f1": 1, "precision": 1, "recall": 1}
    lines = made.format_predictions(EXAMPLES, outputs)
    assert [line["labels"] for line in lines] == TRUTH
    assert [line["words"] for line in lines] == [x["words"] for x in EXAMPLES]
    assert lines[0]["entities"] == [
        {"type": "PER", "start": 0, "end": 2},
        {"type": "LOC", "start": 3, "end": 4},
    ]


def test_scores_count_entities_and_words():
    made = tagging_data.form("bert", metrics=("f1", "precision", "recall", "accuracy"))
    told = [list(tags) for tags in TRUTH]
    told[0][1], told[1][0] = "O", "B-LOC"  # an entity loses its end; another is made up
    found = made.scores(EXAMPLES, as_outputs(made, told))
    there = sum(tag.startswith("B") for tags in TRUTH for tag in tags)
    right, guessed, words = there - 1, there + 1, sum(map(len, TRUTH))
    assert found["precision"] == pytest.approx(right / guessed)
    assert found["recall"] == pytest.approx(right / there)
    assert found["f1"] == pytest.approx(2 * right / (guessed + there))
    assert found["accuracy"] == pytest.approx((words - 2) / words)


def test_strict_scores_count_soundly_written_entities_alone():
    told = [list(tags) for tags in TRUTH]
    told[1][1] = "I-LOC"  # read leniently, an entity all the same
    scores = [
        made.scores(EXAMPLES, as_outputs(made, told))["recall"]
        for made in (tagging_data.form("bert", strict=strict) for strict in (False, True))
    ]
    there = sum(tag.startswith("B") for tags in TRUTH for tag in tags)
    assert scores == [1, pytest.approx((there - 1) / there)]


def test_labels_without_a_scheme_are_those_found_and_scored_word_by_word():
    made = tagging_data.form("bert", scheme="")
    assert made.labels == sorted(LABELS)
    told = [["O"] * len(tags) for tags in TRUTH]
    outside = sum(tag == "O" for tags in TRUTH for tag in tags)
    found = made.scores(EXAMPLES, as_outputs(made, told))
    assert found == {"accuracy": pytest.approx(outside / sum(map(len, TRUTH)))}


def test_with_a_scheme_every_letter_of_every_type_can_be_told():
    made = tagging_data.form("bert", examples=EXAMPLES[1:2])
    assert made.labels == ["O", "B-LOC", "I-LOC"]
    made = tagging_data.form("bert", convert_to="bmes")
    assert made.labels[5:] == ["B-PER", "M-PER", "E-PER", "S-PER"]


def broken(**changes):
    return [EXAMPLES[0], EXAMPLES[1] | changes]


@pytest.mark.parametrize(
    ("examples", "fields", "message"),
    [
        (broken(labels=["O", "I-LOC"]), {}, "a.conll, line 2, word 2: I-LOC may not follow O"),
        (broken(labels=["O", "LOC"]), {}, "tag 'LOC'"),
        (broken(labels=["O"]), {}, "line 2: 1 labels for 2 words"),
        (EXAMPLES, {"scheme": "iob9"}, "scheme='iob9'"),
        (EXAMPLES, {"scheme": "", "convert_to": "iob2"}, "task.scheme is to name"),
        (EXAMPLES, {"scheme": "", "metrics": ("f1",)}, "counted with a task.scheme"),
        (EXAMPLES, {"metrics": ("bleu",)}, "task.metrics='bleu'"),
        (EXAMPLES, {"piece": "middle"}, "task.piece='middle'"),
        ([EXAMPLES[0] | {"labels": ["O"] * 4}], {}, "1 labels in the training set"),
    ],
)
def test_what_is_wrong_is_said_at_the_door(examples, fields, message):
    with pytest.raises(UserError, match=message):
        tagging_data.form("bert", examples=examples, **fields)


def test_a_type_that_training_has_not_is_refused_where_labels_are_listed():
    labels = ["O", "B-LOC", "I-LOC"]
    with pytest.raises(UserError, match=r"line 1: label 'B-PER' is none of O, B-LOC, I-LOC"):
        tagging_data.form("bert", labels=labels).arrays(EXAMPLES)


SCHEMES = [("", ""), *(("iob2", scheme) for scheme in ("iob1", "iob2", "iobes", "bilou", "bmes"))]


@pytest.mark.parametrize(("scheme", "learned"), SCHEMES)
def test_a_type_that_training_has_not_is_an_error_in_every_scheme(scheme, learned):
    fields = dict(scheme=scheme, convert_to=learned)
    made = tagging_data.form("bert", examples=EXAMPLES[1:2], **fields)
    again = tag.TaskData(made.inputs, [], **json.loads(json.dumps(made.to_config())))
    for form in (made, again):
        form.arrays(EXAMPLES)
        label_BL = form.arrays(EXAMPLES)["label_BL"]
        strange = [tag for tags in TRUTH for tag in tags if tag not in ("O", "B-LOC")]
        strange = [tag for tag in strange if not (scheme and tag == "I-LOC")]
        assert (label_BL == -2).sum() == len(strange)
        assert len(form.notes) == 1
        assert "PER' (a.conll, line 1)" in form.notes[0]


def test_an_entity_of_an_unseen_type_counts_as_not_found():
    made = tagging_data.form(
        "bert", examples=EXAMPLES[1:2], metrics=("recall", "precision", "accuracy")
    )
    told = [[tag if "LOC" in tag else "O" for tag in tags] for tags in TRUTH]
    flat = [tag for tags in TRUTH for tag in tags]
    share = flat.count("B-LOC") / (flat.count("B-LOC") + flat.count("B-PER"))
    right = sum("PER" not in tag for tag in flat) / len(flat)
    found = made.scores(EXAMPLES, as_outputs(made, told))
    assert found == {"recall": share, "precision": 1, "accuracy": pytest.approx(right)}


def test_what_is_kept_makes_the_same_encoder():
    made = tagging_data.form("bert", min_count=2, own_characters=9)
    again = tag.TaskData(made.inputs, [], **made.to_config())
    expected = {"word_V": len(made.vocabulary) + 1, "char_W": 9}
    assert again.encoder_fields() == made.encoder_fields() == expected
    assert again.labels == made.labels


def test_digits_of_the_task_s_own_words_are_alike():
    dates = [dict(words=["In", "1987", "2026"], labels=["O", "O", "O"], where="line 1")]
    made = tagging_data.form("bert", examples=EXAMPLES + dates, min_count=2, zero_digits=True)
    assert "0000" in made.vocabulary
    arrays = made.arrays(dates)
    rare, one, other = arrays["own_BL"][arrays["word_BL"]]
    assert one == other > rare == 0


# --- the device's part ---------------------------------------------------------------------------


# BERT's padding is on the right, XLNet's on the left.
@pytest.mark.parametrize(
    "system", ["bert", "xlnet", *(pytest.param(x, marks=pytest.mark.slow) for x in ("gpt", "elmo"))]
)
def test_padding_and_neighbours_change_no_emission(system):
    emissions = []
    for L, examples in ((40, EXAMPLES), (47, EXAMPLES[::-1])):
        made = tagging_data.form(system, L)
        module, rows = tagging_data.task(made), tagging_data.batch(made, examples)
        params = tagging_data.draw_params(module, rows)
        x_BLC = tagging_data.told(module, params, rows, "score_tags", train=False)[0]
        emissions.append([x[at] for x, at in zip(x_BLC, rows["word_BL"], strict=True)])
    for one, other, example in zip(emissions[0], emissions[1][::-1], EXAMPLES, strict=True):
        assert one.shape == (len(example["words"]), len(LABELS))
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


@pytest.fixture(scope="module", params=["plain", "constrained", "crf", "both"])
def decided(request):
    """A task with weights drawn at random, its rows, and its emissions of them."""
    made = tagging_data.form("bert")
    crf, constrained = request.param in ("crf", "both"), request.param in ("constrained", "both")
    module, rows = (
        tagging_data.task(made, head=dict(crf=crf, constrained=constrained)),
        tagging_data.batch(made),
    )
    params = tagging_data.draw_params(module, rows, 0.8)
    emissions_BLC = tagging_data.told(module, params, rows, "score_tags", train=False)[0]
    own = [x[at] for x, at in zip(emissions_BLC, rows["word_BL"], strict=True)]
    C = len(LABELS)
    chain = Chain(np.zeros(C), np.zeros(C), np.zeros((C, C)))
    return made, module, params, rows, own, Chain(**params["chain"]) if crf else chain


def test_the_tags_told_are_the_best_path_of_those_allowed(decided):
    made, module, params, rows, own, chain = decided
    tags = made.tags(EXAMPLES, tagging_data.told(module, params, rows))
    for x_LC, told in zip(own[:3], tags, strict=False):
        paths, scores = test_crf.paths(x_LC, chain)
        pairs = zip(paths, scores, strict=True)
        if module.constrained:
            pairs = ((path, score) for path, score in pairs if sound(path))
        best, _ = max(pairs, key=lambda pair: pair[1])
        assert [LABELS[i] for i in best] == told


def sound(path):
    tags = [LABELS[i] for i in path]
    return all(
        tag[0] != "I" or (before != "O" and before[1:] == tag[1:])
        for before, tag in itertools.pairwise(["O", *tags])
    )


def test_the_loss_is_of_the_true_path_or_of_each_true_tag_and_fillers_count_nothing(decided):
    _, module, params, rows, own, chain = decided
    rows = rows | {"weight_B": np.array([1, 0, 1, 0], np.float32)}
    total, weight = jax.tree.leaves(
        tagging_data.told(module, params, rows, "__call__", train=False)["loss"]
    )
    nats, words = 0.0, 0
    for b in (0, 2):
        path = tuple(LABELS.index(tag) for tag in TRUTH[b])
        paths, scores = test_crf.paths(own[b], chain)
        nats += test_crf.log_sum(scores) - scores[paths.index(path)]
        words += len(path)
    assert total == pytest.approx(nats, rel=1e-4)
    assert weight == (2 if module.chain else words)


def test_words_without_a_label_count_nothing(decided):
    _, module, params, rows, _, _ = decided
    rows = rows | {"label_BL": np.full_like(rows["label_BL"], -1)}
    total, weight = jax.tree.leaves(
        tagging_data.told(module, params, rows, "__call__", train=False)["loss"]
    )
    assert total == weight == 0


def test_words_of_unseen_tags_are_in_no_loss_and_misses(decided):
    _, module, params, rows, _, _ = decided
    label_BL, first = rows["label_BL"].copy(), int(rows["word_BL"][0].argmax())
    label_BL[0, first] = -2
    if module.chain:  # the path as a whole has no probability
        others = rows | {"weight_B": np.array([0, 1, 1, 1], np.float32)}
    else:
        others = rows | {"label_BL": np.where(label_BL == -2, -1, label_BL)}

    @quick_jit
    def run(params, batch):
        given = {"params": params}, batch
        return module.apply(*given, train=False), module.apply(*given, method="predict")

    (sums, told), (expected, same) = (
        run(params, x) for x in (rows | {"label_BL": label_BL}, others)
    )
    np.testing.assert_allclose(sums["loss"].total, expected["loss"].total, rtol=1e-6)
    np.testing.assert_array_equal(told["tag_BL"], same["tag_BL"])
    if not module.chain:
        hits, words = jax.tree.leaves(expected["hits"])
        assert [*map(float, jax.tree.leaves(sums["hits"]))] == [hits, words + 1]


def test_constraints_need_a_scheme():
    made = tagging_data.form("bert", scheme="")
    with pytest.raises(UserError, match="constrained: task"):
        tagging_data.task(made, head=dict(constrained=True))
