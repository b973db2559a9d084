"""Answers are found in windows, and cut from the text as it was given."""

import io
import itertools
import json
import tracemalloc

import numpy as np
import pytest

from finetune import tasks
from finetune.job import build_inputs
from finetune.prediction import submissions
from finetune.starting_point import start_from
from finetune.tasks import span
from pretrain.runtime.errors import UserError
from tests.support import tagging_data
from tests.support.tiny_models import KINDS, run
from tests.support.tiny_runs import quickly

pytest_plugins = ["tests.support.tiny_runs"]
__all__ = ["run"]

L, STRIDE = 32, 5


@pytest.fixture(scope="module")
def inputs(run):
    """How the toy run of that system reads."""

    def make(kind, L=L):
        start = start_from(run(kind))
        return build_inputs(start, start.backbone(), L)

    return make


@pytest.fixture
def examples(toy, request):
    """Four questions on two contexts, one of them longer than a row; known to the character."""
    words = toy.text.read_text().split()
    kind = request.node.callspec.params.get("kind") if hasattr(request.node, "callspec") else ""
    long = " ".join(words[: 13 if kind in ("plm", "clm") else 40])  # a word is many pieces to them
    short = "  ".join(words[20:24])
    return [
        asked("a", words[3], long, words[1]),
        asked("b", words[5], long, f"{words[10]} {words[11]}"),
        asked("c", words[21], short, words[22]),
        asked("d", words[22], short, words[20]),
    ]


def asked(name, question, context, answer=None, impossible=False):
    answers = [{"text": answer, "start": context.index(answer)}] if answer else []
    return {
        "id": name,
        "question": question,
        "context": context,
        "answers": answers,
        "impossible": impossible,
        "where": f"question {name}",
    }


def formed(inputs, examples, **fields):
    return span.TaskData(inputs, examples, **{"stride": STRIDE, "max_query": 4} | fields)


def read_back(inputs, tokens):
    """The words that these tokens say, without the blanks between them."""
    if inputs.W:
        inside = [[x for x in word if x < 256] for word in tokens]
        return b"".join(bytes(word) for word in inside).decode()
    return inputs.tokenizer.decode(tokens).replace(" ", "")


@pytest.mark.parametrize("kind", KINDS)
def test_the_tokens_of_the_answer_are_the_answer_s_and_every_answer_is_somewhere(
    inputs, examples, kind
):
    own = inputs(kind)
    form = formed(own, examples)
    arrays = form.arrays(examples)
    tokens = arrays["tokens_BLW" if own.W else "tokens_BL"]
    contexts = form.questions.encode_contexts(examples)
    found = set()
    for i, piece in enumerate(form.questions.iter_windows(examples, contexts)):
        example, null = examples[piece.example], arrays["null_B"][i]
        start, end = arrays["start_B"][i], arrays["end_B"][i]
        assert arrays["valid_BL"][i, null]
        assert not arrays["context_BL"][i, null]
        if start == null == end:
            continue
        found.add(example["id"])
        assert arrays["context_BL"][i, start : end + 1].all()
        answer = example["answers"][0]["text"].replace(" ", "")
        assert read_back(own, tokens[i, start : end + 1]).lower() == answer.lower()
    assert found == {"a", "b", "c", "d"}
    assert len(tokens) > len(examples)  # of some there are several windows


@pytest.mark.parametrize("kind", quickly("mlm"))
def test_order_of_rows_and_padding_change_no_answer(run, inputs, examples, kind):
    data = formed(inputs(kind), examples[2:], n_best=3)
    task = tasks.build_task(start_from(run(kind)).backbone(), data)
    rows = tagging_data.add_weights(data.arrays(examples[2:]))
    params = tagging_data.draw_params(task, rows)
    lines = data.format_predictions(examples[2:], tagging_data.told(task, params, rows))
    less = formed(inputs(kind, L - 1), examples[2:][::-1], n_best=3)
    rows = tagging_data.add_weights(less.arrays(examples[2:][::-1]))
    others = less.format_predictions(examples[2:][::-1], tagging_data.told(task, params, rows))
    for line, other in zip(lines, others[::-1], strict=True):
        assert line["prediction_text"] == other["prediction_text"]
        assert line["no_answer_probability"] == pytest.approx(other["no_answer_probability"], 1e-3)
        for one, two in zip(line["n_best"], other["n_best"], strict=True):
            assert one == {
                "text": two["text"],
                "probability": pytest.approx(two["probability"], 1e-3),
            }


# --- from candidates to answers ------------------------------------------------------------------


def told_of(form, examples, seed=0):
    """Outputs in which every pair of positions is a candidate, with scores at random."""
    rng, arrays = np.random.default_rng(seed), form.arrays(examples)
    pairs_O2 = np.array(list(itertools.product(range(L), range(L))), np.int32)
    rows = len(arrays["start_B"])
    start_BO, end_BO = (np.tile(x, (rows, 1)) for x in pairs_O2.T)
    scores_BL = rng.normal(0, 1, (2, rows, L)).astype(np.float32)
    score_BO = np.take_along_axis(scores_BL[0], start_BO, 1) + np.take_along_axis(
        scores_BL[1], end_BO, 1
    )
    none_B = rng.normal(3, 1, rows).astype(np.float32)
    return dict(start_BO=start_BO, end_BO=end_BO, score_BO=score_BO, none_B=none_B)


def brute(form, example, pieces, outputs, longest):
    """({text: its best score}, the least none) by looking at every span of every window."""
    context = form.questions.encode_contexts([example])[example["context"]]
    best: dict[str, float] = {}
    for i, piece in pieces:
        scores_LL = outputs["score_BO"][i].reshape(L, L)
        for start in piece.window:
            most = max(  # the context that each window gives this token
                (min(start - p.window.start, p.window.stop - 1 - start) + 0.01 * len(p.window), -n)
                for n, (_, p) in enumerate(pieces)
                if start in p.window
            )
            if pieces[-most[1]][1] is not piece:
                continue
            for end in range(start, min(start + longest, piece.window.stop)):
                at, to = (x - piece.window.start + piece.first for x in (start, end))
                text = example["context"][context.starts[start] : context.ends[end]].strip()
                best[text] = max(best.get(text, -np.inf), scores_LL[at, to])
    best.pop("", None)
    return best, min(outputs["none_B"][i] for i, _ in pieces)


@pytest.mark.parametrize("kind", KINDS)
def test_the_best_span_over_all_windows_is_told_by_the_text_as_it_was_given(inputs, examples, kind):
    if kind == "mlm":  # which reads all in lower case
        examples = [x | {"context": x["context"].title(), "answers": []} for x in examples]
    form = formed(inputs(kind), examples, max_answer=3, n_best=4)
    outputs = told_of(form, examples)
    contexts = form.questions.encode_contexts(examples)
    pieces = list(enumerate(form.questions.iter_windows(examples, contexts)))
    for number, (example, line) in enumerate(
        zip(examples, form.format_predictions(examples, outputs), strict=True)
    ):
        own = [(i, piece) for i, piece in pieces if piece.example == number]
        best, none = brute(form, example, own, outputs, 3)
        ranked = sorted(best.items(), key=lambda pair: -pair[1])[:4]
        assert line["prediction_text"] == ranked[0][0]
        assert line["prediction_text"] in example["context"]
        assert [x["text"] for x in line["n_best"]] == [text for text, _ in ranked]
        odds = none if form.conditional else none - ranked[0][1]
        assert line["no_answer_probability"] == pytest.approx(1 / (1 + np.exp(-odds)), rel=1e-5)
        total = sum(np.exp(score) for _, score in ranked)
        shares = [x["probability"] for x in line["n_best"]]
        assert shares == pytest.approx([np.exp(score) / total for _, score in ranked], rel=1e-5)


def test_a_question_without_an_answer_points_every_window_to_none(inputs, examples):
    unanswered = asked("e", "why", examples[0]["context"], impossible=True)
    form = formed(inputs("mlm"), [*examples, unanswered])
    arrays = form.arrays([unanswered])
    assert len(arrays["null_B"]) > 1
    np.testing.assert_array_equal(arrays["start_B"], arrays["null_B"])
    np.testing.assert_array_equal(arrays["end_B"], arrays["null_B"])
    assert form.unanswerable
    assert not formed(inputs("mlm"), examples).unanswerable


def test_none_is_told_above_the_threshold_and_scored_by_the_script_of_squad_2(inputs, examples):
    both = [*examples, asked("e", "why", examples[0]["context"], impossible=True)]
    form = formed(inputs("mlm"), both)
    outputs = told_of(form, both)
    odds = [line["no_answer_probability"] for line in form.format_predictions(both, outputs)]
    assert len(set(odds)) == len(both)
    for threshold in (0.0, np.median(odds), 1.0):
        form = formed(inputs("mlm"), both, threshold=threshold)
        lines = form.format_predictions(both, outputs)
        assert [line["prediction_text"] == "" for line in lines] == [x > threshold for x in odds]
        answer = io.StringIO()
        with submissions.write_squad(answer) as write:
            for example, line in zip(both, lines, strict=True):
                write(example, line)
        assert json.loads(answer.getvalue()) == {x["id"]: x["prediction_text"] for x in lines}
    found = formed(inputs("mlm"), both, threshold=0.0).scores(both, outputs)
    assert found["exact"] == 20.0  # nothing is answered, and one of five should not be
    assert found["NoAns_exact"] == 100.0
    assert found["best_f1"] >= found["f1"]


def test_a_question_without_answer_is_an_error_where_training_has_none(inputs, examples):
    form = formed(inputs("mlm"), examples)
    strange = [*examples[2:], asked("e", "why", examples[2]["context"], impossible=True)]
    for _ in range(2):
        form.arrays(strange)
    assert sum("question e: a question without an answer" in note for note in form.notes) == 1
    outputs = told_of(form, strange)
    without = form.scores(examples[2:], {name: x[:-1] for name, x in outputs.items()})
    assert form.scores(strange, outputs) == {
        k: pytest.approx(x * 2 / 3) for k, x in without.items()
    }


def test_the_threshold_that_does_best_is_kept_unless_the_recipe_says_one(inputs, examples):
    for said, kept in ((-1.0, 0.25), (0.7, 0.7)):
        form = formed(inputs("mlm"), examples, threshold=said, unanswerable=True)
        assert form.threshold == (0.5 if said < 0 else said)
        form.tune({"dev/f1": 1.0})
        assert form.to_config()["threshold"] == said
        form.tune({"dev/best_f1_thresh": 0.25})
        assert span.TaskData(form.inputs, [], **form.to_config()).threshold == kept


def test_an_answer_that_is_not_known_is_not_learned(inputs, examples):
    form = formed(inputs("mlm"), examples)
    arrays = form.arrays([x | {"answers": []} for x in examples])
    assert (arrays["start_B"] == -1).all()
    assert (arrays["end_B"] == -1).all()


WRONG = {
    "task.stride=0: it is to be 1 at least": dict(stride=0),
    "task.max_answer=0": dict(max_answer=0),
}


@pytest.mark.parametrize("reason", WRONG)
def test_what_cannot_be_is_refused_in_a_line(inputs, examples, reason):
    with pytest.raises(UserError, match=reason):
        formed(inputs("mlm"), examples, **WRONG[reason])


def test_a_context_of_thousands_of_words_is_read_in_memory_for_its_text(inputs):
    count = 4000
    words = " ".join(["people of a state"] * (count // 4))
    long = asked("a", "state", words, "people")
    form = formed(inputs("mlm"), [long])
    tracemalloc.start()
    arrays = form.arrays([long])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    rows = len(arrays["start_B"])
    assert rows > count // STRIDE
    assert arrays["context_BL"].shape == (rows, L)
    assert peak < 5000 * rows
