"""Predictions of labelled and unlabelled examples are told apart and keep their order."""

import numpy as np

from finetune.prediction.example_predictor import ExamplePredictor
from finetune.tasks.classify import TaskData


class Alternating(ExamplePredictor):
    """Predicts "n", "y", "n", ... of whatever it is called with."""

    data = TaskData(None, (), labels=("n", "y"))

    def __call__(self, examples):
        return {"logits_BC": np.eye(2, dtype="f")[np.arange(len(examples)) % 2]}


def test_an_example_with_a_gap_has_its_line_and_no_prediction():
    gap = {"texts": [""], "label": None, "where": "", "gap": "'text' is empty"}
    lines, labelled, _ = Alternating().predict_lines([gap])
    assert labelled == []
    assert lines == [{"label": None, "probabilities": None, "reason": "'text' is empty"}]


def test_lines_are_in_the_order_of_examples_and_the_labelled_are_returned():
    examples = [{"texts": ["a"], "label": x, "where": ""} for x in ("n", None, "y", None, None)]
    lines, labelled, outputs = Alternating().predict_lines(examples)
    assert [x["label"] for x in lines] == ["n", "n", "y", "y", "n"]
    assert labelled == [examples[0], examples[2]]
    assert outputs["logits_BC"].tolist() == [[1, 0], [0, 1]]
