"""What a fine-tuned run exports computes in transformers what the run does."""

import functools
import pathlib
import shutil

import jax
import numpy as np
import pytest

from pretrain.conversion.systems import bert
from pretrain.conversion.task_heads import TunedHead, find_head
from pretrain.runtime.json_files import read_json, update_json, write_json
from tests.support import tuned_runs as cases
from tests.support.bert_release import import_release
from tests.support.compiler import quick_jit
from tests.support.xlnet_inputs import off

GOLDEN = np.load(pathlib.Path(__file__).parents[2] / "fixtures" / "heads" / "heads.npz")


def read_golden(system, task):
    """What transformers 5.23 made of the same export."""
    case = f"{system}/{task}/"
    return {k.removeprefix(case): GOLDEN[k] for k in GOLDEN if k.startswith(case)}


def run_task(task, params, rows):
    """All that the task computes of rows."""
    if hasattr(task, "score_tags"):
        return {"logits": task.apply(params, rows, train=False, method="score_tags")[0]}
    outputs = task.apply(params, rows, method="predict")
    logits = [x for k, x in outputs.items() if k.startswith("logits")]
    return {"logits": logits[0]} if logits else outputs


QUICK = {  # the others differ in less
    ("bert", "tag"): 1,
    ("bert", "classify"): 2,
    ("bert_bare", "classify"): 2,
    ("xlnet", "classify"): 2,
    ("xlnet", "conditional"): 1,
    ("gpt2", "bare"): 1,
    ("gpt1", "bare"): 1,
}


def mark_cases(level, cases):
    """Marks the cases as slow that are not so quick."""
    slow = pytest.mark.slow
    return [pytest.param(*x, marks=() if QUICK.get(x, 9) <= level else slow) for x in cases]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """(system, task) -> the run, its folder, its rows and its parameters."""
    folder = tmp_path_factory.mktemp("runs")

    @functools.cache
    def open_case(system, task):
        workdir = folder / f"{system}-{task}"
        return *cases.write_run(system, task, workdir), workdir

    return open_case


@pytest.mark.parametrize(("system", "task"), mark_cases(2, cases.CASES))
def test_an_export_is_the_one_that_transformers_read(runs, tmp_path, system, task):
    *_, workdir = runs(system, task)
    cases.export(workdir, tmp_path / "out")
    assert cases.hash_weights(tmp_path / "out") == str(read_golden(system, task)["sha256"])


@pytest.mark.parametrize(("system", "task"), mark_cases(1, cases.CASES))
def test_outputs_are_those_of_transformers(runs, system, task):
    tuned, rows, params, _ = runs(system, task)
    theirs = read_golden(system, task)
    with jax.default_matmul_precision("highest"):
        run = quick_jit(lambda params, rows: run_task(tuned.task, {"params": params}, rows))
        ours = run(params, rows)
    if task == "conditional":
        assert_same_answers(rows, ours, theirs)
    elif task == "span":
        assert_same_ends(ours, theirs)
    else:
        logits, found = theirs["logits"], ours.get("logits", ours.get("value_B"))
        # Of tags at the words' places: elsewhere nothing is predicted.
        places = rows["word_BL"] if task == "tag" else np.ones(len(logits), bool)
        assert off(found.reshape(logits.shape)[places], logits[places]) < 2e-6


def assert_same_ends(ours, theirs):
    """A span's score is the sum of those of its ends."""
    b = np.arange(len(ours["start_BO"]))[:, None]
    ends = zip(("start", "end"), (ours["start_BO"], ours["end_BO"]), strict=True)
    expected = sum(theirs[f"{name}_logits"][b, at_BO] for name, at_BO in ends)
    is_there = ours["score_BO"] > -1e29  # a context may have fewer positions than are asked for
    assert off(ours["score_BO"][is_there], expected[is_there]) < 2e-6


def assert_same_answers(rows, ours, theirs):
    """Spans that both name have one score, and both are as sure that there is an answer."""
    with np.errstate(divide="ignore"):  # of the forbidden
        start_log_p, end_log_p = (np.log(theirs[f"{x}_top_log_probs"]) for x in ("start", "end"))
    assert off(ours["none_B"], theirs["cls_logits"]) < 2e-6
    compared = 0
    for b, context_L in enumerate(rows["context_BL"]):
        pairs = zip(ours["start_BO"][b], ours["end_BO"][b], ours["score_BO"][b], strict=True)
        scores = {(int(s), int(e)): score for s, e, score in pairs}
        for i, (end, log_p) in enumerate(
            zip(theirs["end_top_index"][b], end_log_p[b], strict=True)
        ):
            start = theirs["start_top_index"][b][i % 5]
            if context_L[start] and context_L[end]:
                compared += 1
                assert scores[start, end] == pytest.approx(start_log_p[b][i % 5] + log_p, abs=2e-5)
    assert compared > 20


def test_labels_and_the_kind_of_problem_are_in_the_configuration(runs, tmp_path):
    fields = {}
    for task in ("classify", "tag"):
        cases.export(runs("bert", task)[-1], tmp_path / task)
        fields[task] = read_json(tmp_path / task / "config.json")
    assert fields["classify"]["id2label"] == {"0": "no", "1": "maybe", "2": "yes"}
    assert fields["classify"]["label2id"] == {"no": 0, "maybe": 1, "yes": 2}
    assert fields["classify"]["problem_type"] == "single_label_classification"
    assert fields["tag"]["classifier_dropout"] == 0.3
    assert fields["tag"]["architectures"] == ["BertForTokenClassification"]


def test_a_number_goes_out_as_a_regression():
    fields = TunedHead(dict(name="regress"), bert.HEADS["number"][0]).list_config_fields()
    assert fields["id2label"] == {"0": "LABEL_0"}
    assert fields["problem_type"] == "regression"


def test_the_card_names_the_class_and_the_way_back(runs, tmp_path):
    cases.export(runs("bert", "tag")[-1], tmp_path / "out")
    card = (tmp_path / "out/README.md").read_text()
    assert "\npipeline_tag: token-classification\n" in card
    assert "fine-tuned, as `BertForTokenClassification`" in card
    assert "--ignore='(classifier).*'" in card
    import_release(tmp_path / "out", tmp_path / "run", ignore="(classifier).*")


STAYS = {
    "with a CRF": ("tag", dict(head=dict(crf=True))),
    "with task.encoder.name='scalar_mix'": ("classify", dict(encoder=dict(name="scalar_mix"))),
    "reads a pair in both orders": ("classify", dict(both=True)),
    "has pool='first', and this run task.head.pool='mean'": (
        "classify",
        dict(head=dict(pool="mean")),
    ),
    "has summary='pooler', and this run task.head.summary='none'": (
        "classify",
        dict(head=dict(summary="none")),
    ),
    "no class for task.name='contrast'": ("classify", dict(name="contrast")),
    "no class with a head of task.name='conditional_span'": ("span", dict(conditional=True)),
}


@pytest.mark.parametrize("reason", STAYS)
def test_a_head_without_a_class_has_a_reason_to_stay(runs, tmp_path, reason):
    task, changes = STAYS[reason]
    tuned, *_ = runs("bert", "tag")
    write_json(tmp_path / "task.json", cases.TASKS[task] | changes)
    shapes = dict.fromkeys(("backbone/x", "head/w_DC", "head/bias_C"), (1,))
    found = find_head(tuned.run._replace(workdir=tmp_path), bert.HEADS, shapes)
    assert found.head is None
    assert reason in found.reason


def test_the_backbone_goes_out_alone_where_its_head_stays(runs, tmp_path):
    workdir = tmp_path / "run"
    shutil.copytree(runs("bert", "tag")[-1], workdir)
    update_json(workdir / "task.json", head=dict(crf=True))
    first, *_ = cases.export(workdir, tmp_path / "out")
    assert first.startswith("left behind: 2 parameters of the task: ")
    assert read_json(tmp_path / "out/config.json")["architectures"] == ["BertModel"]
