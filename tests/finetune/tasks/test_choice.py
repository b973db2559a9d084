"""Every option is read by itself, in its system's format."""

import jax
import numpy as np
import pytest

from finetune.inputs.batches import Examples
from finetune.tasks import choice
from pretrain.runtime.errors import UserError
from tests.support import choice_data as cases
from tests.support.choice_data import SYSTEMS
from tests.support.compiler import quick_jit

PASSAGE, QUESTION = "the dog went out . the sun came", "why came the dog home"
THREE = {"texts": [PASSAGE, QUESTION], "choices": ["rain", "the cat", "a sun"], "label": 1}
TWO = {"texts": ["a cat came home", "where"], "choices": ["out", "the dog home"], "label": 0}
ONE_TEXT = {"texts": ["the cat saw rain"], "choices": ["wet", "a dry sun"], "label": 0}
EXAMPLES = [THREE, TWO, ONE_TEXT, {**THREE, "choices": THREE["choices"][::-1], "label": None}]


def form(system, examples=EXAMPLES, **fields):
    return cases.form(choice, system, examples, **fields)


def texts_of(made, arrays, b, o):
    """A row as ids, or as the characters of its words, without its padding."""
    name = "tokens_BOLW" if made.inputs.W else "tokens_BOL"
    return arrays[name][b, o][arrays["valid_BOL"][b, o]].tolist()


def joined(made, *parts):
    """Texts, and marks in <>, one after the other."""
    found = []
    for part in parts:
        mark = part[0] == "<"
        ids = made.inputs.marks([part[1:-1]]) if mark else made.inputs.tokens([part])[0]
        found += ids.tolist()
    return found


FORMATS = {  # of a passage, a question and an option
    "bert": ("<cls>", "{p}", "<sep>", "{q} {o}", "<sep>"),
    "xlnet": ("{p}", "<sep>", "{q} {o}", "<sep>", "<cls>"),
    "gpt": ("<start>", "{p} {q}", "<delimiter>", "{o}", "<extract>"),
    "elmo": ("<bos>", "{p}", "<eos>", "<bos>", "{q} {o}", "<eos>"),
}


@pytest.mark.parametrize("system", SYSTEMS)
def test_each_option_is_read_in_the_format_of_its_system(system):
    made = form(system)
    arrays = made.arrays(EXAMPLES)
    for o, option in enumerate(THREE["choices"]):
        parts = [x.format(p=PASSAGE, q=QUESTION, o=option) for x in FORMATS[system]]
        assert texts_of(made, arrays, 0, o) == joined(made, *parts)
    place = [x.format(p="{p}", q="{p}", o="{o}") for x in FORMATS[system]]
    single = [x.replace("{p} {o}", "{o}").replace("{p} {p}", "{p}") for x in place]
    single = [x.format(p=ONE_TEXT["texts"][0], o="wet") for x in single]
    assert texts_of(made, arrays, 2, 0) == joined(made, *single)
    np.testing.assert_array_equal(arrays["there_BO"].sum(1), [3, 2, 2, 3])
    np.testing.assert_array_equal(arrays["label_B"], [1, 0, 0, -1])


@pytest.mark.parametrize("system", SYSTEMS)
def test_an_option_takes_the_place_of_a_gap_but_gpt_reads_it_apart(system):
    cloze = {"texts": [PASSAGE, "why _ home"], "choices": ["rain", "the cat"], "label": 0}
    made = form(system, [cloze], gap="_")
    parts = [x.replace("{q} {o}", "why {o} home") for x in FORMATS[system]]
    parts = [x.format(p=PASSAGE, q="why _ home", o="the cat") for x in parts]
    assert texts_of(made, made.arrays([cloze]), 0, 1) == joined(made, *parts)


@pytest.mark.parametrize("system", SYSTEMS)
def test_what_is_too_long_loses_the_end_of_the_passage_and_nothing_else(system):
    long = {**THREE, "texts": [" ".join([PASSAGE] * 9), QUESTION]}
    made = form(system, [long])
    arrays = made.arrays([long])
    assert made.notes == ["3 of 3 rows were longer than 48"]
    passage = joined(made, long["texts"][0])
    for o, option in enumerate(long["choices"]):
        parts = [x.format(p=" ", q=QUESTION, o=option) for x in FORMATS[system]]
        if system == "gpt":
            parts[1] = f" {QUESTION}"
        rest = [joined(made, x) if x.strip() else [] for x in parts]
        at = [x.strip() for x in parts].index("") if system != "gpt" else 1
        n = made.inputs.L - sum(map(len, rest))
        rest[at:at] = [passage[:n]]
        assert texts_of(made, arrays, 0, o) == [x for part in rest for x in part]
    assert arrays["valid_BOL"].all()


@pytest.fixture(scope="module")
def ready():
    """By system: (form, batch, task, parameters, rows -> logits)."""
    kept = {}

    def make(system):
        if system not in kept:
            made = form(system)
            rows = cases.batch(made.arrays(EXAMPLES))
            module = cases.task(made)
            params = cases.draw_params(module, rows)
            kept[system] = made, rows, module, params, cases.predictor(module, params)
        return kept[system]

    return make


@pytest.mark.parametrize("system", SYSTEMS)
def test_the_text_of_an_option_is_nothing_to_the_logits_of_the_others(ready, system):
    made, rows, _, _, logits = ready(system)
    changed = [{**x, "choices": [x["choices"][0], "dry " * 5, *x["choices"][2:]]} for x in EXAMPLES]
    one, two = logits(rows), logits(cases.batch(made.arrays(changed)))
    assert (one[:, 1] != two[:, 1]).all()
    np.testing.assert_array_equal(np.delete(one, 1, 1), np.delete(two, 1, 1))


@pytest.mark.parametrize("system", SYSTEMS)
def test_place_in_the_batch_padding_and_other_examples_change_nothing(ready, system):
    _, rows, module, params, logits = ready(system)
    expected = logits(rows)
    turned = logits({name: x[::-1] for name, x in rows.items()})
    np.testing.assert_allclose(turned[::-1], expected, rtol=1e-5, atol=1e-6)
    made = form(system, L=60)
    wider = cases.predictor(module, params)(cases.batch(made.arrays(EXAMPLES)))
    np.testing.assert_allclose(wider, expected, rtol=1e-4, atol=1e-5)
    assert expected[0, :3].tolist() == pytest.approx(expected[3, 2::-1].tolist(), rel=1e-4)


@pytest.fixture(scope="module")
def grad(ready):
    return cases.learner(ready("bert")[2])


def test_options_that_are_not_there_never_win_and_are_not_learned_from(ready, grad):
    _, rows, _, params, logits = ready("bert")
    assert (logits(rows)[1:3].argmax(1) < 2).all()
    one, sums = grad(params, rows)
    changed = dict(rows, tokens_BOL=rows["tokens_BOL"].copy())
    changed["tokens_BOL"][1:3, 2] = 7
    other, other_sums = grad(params, changed)
    jax.tree.map(np.testing.assert_array_equal, (one, sums), (other, other_sums))
    pair = cases.batch(form("bert", [TWO]).arrays([TWO]))
    assert pair["there_BO"].shape == (1, 2)
    alone, _ = grad(params, pair)
    padded = dict(rows, weight_B=np.array([0, 1, 0, 0], np.float32))
    within, _ = grad(params, padded)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=1e-5), alone, within)


def test_the_loss_is_the_softmax_over_an_example_s_own_options(ready, grad):
    _, rows, _, params, logits = ready("bert")
    _, sums = grad(params, rows)
    known = list(zip(logits(rows).astype(np.float64)[:3], EXAMPLES[:3], strict=True))
    own = [(x[: len(e["choices"])], e["label"]) for x, e in known]
    nats = [np.log(np.exp(x).sum()) - x[label] for x, label in own]
    right = [x.argmax() == label for x, label in own]
    assert float(sums["loss"].total) == pytest.approx(sum(nats), rel=1e-5)
    assert [float(x) for x in jax.tree.leaves(sums["accuracy"])] == [sum(right), 3]
    assert float(sums["loss"].weight) == 3


def test_scores_and_lines_know_how_many_options_there_are():
    made = form("bert")
    outputs = {"logits_BO": np.array([[0, 2, 1], [3, 1, 9], [1, 4, 9], [0, 0, 0]], np.float32)}
    assert made.scores(EXAMPLES[:3], {"logits_BO": outputs["logits_BO"][:3]}) == {
        "accuracy": pytest.approx(2 / 3)
    }
    lines = made.format_predictions(EXAMPLES, outputs)
    assert [line["label"] for line in lines] == [1, 0, 1, 0]
    share = np.exp([3, 1]) / np.exp([3, 1]).sum()
    assert lines[1]["probabilities"] == pytest.approx(share.tolist(), abs=1e-6)
    assert lines[3]["probabilities"] == pytest.approx([1 / 3] * 3, abs=1e-6)


def test_the_work_of_a_step_is_that_of_all_options(ready):
    made, rows, module, *_ = ready("bert")
    data = Examples(made.arrays(EXAMPLES), B=2, L=48)
    options = rows["there_BO"].shape[1]
    assert options > 1
    assert data.L / options == 48
    assert module.flops(data.B, data.L) == pytest.approx(options * module.flops(2, 48))


def test_gpt_s_language_model_learns_from_options_that_are_there(ready):
    made, rows, _, params, _ = ready("gpt")
    trained = cases.task(made, language_model=0.5)
    apply = quick_jit(lambda p, b: trained.apply({"params": p}, b, train=False)["lm_loss"])
    own = rows["valid_BOL"][..., 1:].sum(-1) * rows["there_BO"]
    assert float(apply(params, rows).weight) == own.sum()
    with pytest.raises(UserError, match="from left to right"):
        cases.task(form("bert"), language_model=0.5)
