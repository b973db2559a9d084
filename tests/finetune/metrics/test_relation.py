"""Relations score what the official scorer prints for them."""

import pathlib
import re

import pytest

from finetune.metrics import classification
from finetune.metrics import relation as relations
from pretrain.runtime.errors import UserError

OFFICIAL = (
    pathlib.Path(__file__).parents[4] / "shared" / "data" / "semeval2010-task8"
) / "SemEval2010_task8_scorer-v1.2"
ORDER = ("directed", "undirected", "official")  # the scorer's three reports
CLASS = re.compile(r"^ *(\w\S+) : +P = +(\d+)/ *(\(.*?\)|\d+) .*R = +\d+/ *(\d+) ", re.MULTILINE)
PERCENT = r"P = .*?([\d.]+)%\s+R = .*?([\d.]+)%\s+F1 = +([\d.]+)%"


def labels(path):
    return dict(line.split("\t") for line in path.read_text().splitlines())


def printed(report):
    """The figures of one of the scorer's reports."""
    names = ("precision", "recall", "f1")
    figures = {
        f"{kind}_{name}": float(value)
        for kind in ("micro", "macro")
        for values in re.findall(rf"(?i){kind}-averaged.*\n{PERCENT}", report)
        for name, value in zip(names, values, strict=True)
    }
    skipped = re.search(r"skipped examples as Wrong\).* ([\d.]+)%", report)
    return figures | {"accuracy": float(skipped[1])}


def counted(report):
    return {
        name.lstrip("_"): (int(hit), sum(map(int, re.findall(r"\d+", predicted))), int(actual))
        for name, hit, predicted, actual in CLASS.findall(report)
    }


@pytest.mark.parametrize("number", [1, 2, 3, 5])
@pytest.mark.parametrize("way", ORDER)
def test_every_figure_is_the_official_scorers(number, way):
    if not OFFICIAL.exists():
        pytest.skip("needs the files of SemEval-2010 task 8 beside the repository")
    key, answers = (
        labels(OFFICIAL / f"{x}{number}.txt") for x in ("answer_key", "proposed_answer")
    )
    given = [answers.get(number) for number in key]
    text = (OFFICIAL / f"result_scores{number}.txt").read_text()
    report = re.split(r"<<< \(\S+WAY EVALUATION", text.replace(">>>:", ""))[1:][ORDER.index(way)]
    found = relations.relation_scores(given, list(key.values()), way)
    assert len(printed(report)) == 7
    assert found == pytest.approx(printed(report), abs=0.00501)
    counts = relations.relation_counts(given, list(key.values()), way)
    assert {name: tuple(count) for name, count in counts.items()} == counted(report)


GOLD = ["A-B(e1,e2)", "A-B(e2,e1)", "C-D(e1,e2)", "Other", "A-B(e1,e2)"]
GUESS = ["A-B(e1,e2)", "A-B(e1,e2)", "Other", "C-D(e2,e1)", None]


def test_a_wrong_direction_costs_precision_and_recall():
    """A-B: 1 right of 2 found and 3 there; C-D: 0 of 1 and 1."""
    found = relations.relation_scores(GUESS, GOLD)
    expected = {"macro_precision": 25, "macro_recall": 50 / 3, "macro_f1": 20, "accuracy": 20}
    expected |= {"micro_precision": 100 / 3, "micro_recall": 25, "micro_f1": 200 / 7}
    assert found == pytest.approx(expected)


def test_other_ways_drop_or_separate_the_directions():
    undirected = relations.relation_counts(GUESS, GOLD, "undirected")
    assert undirected == {"A-B": (2, 2, 3), "C-D": (0, 1, 1), "Other": (0, 1, 1)}
    directed = relations.relation_counts(GUESS, GOLD, "directed")
    assert directed["A-B(e1,e2)"] == (1, 2, 2)
    assert directed["A-B(e2,e1)"] == (0, 0, 1)
    assert "C-D(e2,e1)" not in directed


def test_other_alone_scores_accuracy_only():
    found = relations.relation_scores(["Other", "Other"], ["Other", "Other"])
    assert found.pop("accuracy") == 100
    assert set(found.values()) == {0}


def test_unusable_lists_are_refused():
    with pytest.raises(UserError, match="nothing to score"):
        relations.relation_scores([], [])
    with pytest.raises(UserError, match="way='both': choose one of official"):
        relations.relation_counts(GUESS, GOLD, "both")


def test_a_task_can_be_judged_by_the_official_score():
    truth = ["Cause-Effect(e1,e2)", "Cause-Effect(e2,e1)", "Other", "Message-Topic(e1,e2)"]
    told = ["Cause-Effect(e1,e2)", "Cause-Effect(e1,e2)", "Other", "Message-Topic(e1,e2)"]
    found = classification.score(("relation_f1",), told, truth)
    assert found == pytest.approx({"relation_f1": (1 / 2 + 1) / 2})
