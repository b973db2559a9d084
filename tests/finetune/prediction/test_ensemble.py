"""Probabilities of several runs are averaged, and of runs of one task alone."""

from types import SimpleNamespace

import numpy as np
import pytest

from finetune.prediction.ensemble import Ensemble
from finetune.prediction.predictor import predict_blocks
from finetune.tasks import regress
from finetune.tasks.classify import TaskData
from pretrain.runtime.errors import UserError

EXAMPLES = [{"texts": [x], "label": y, "where": x} for x, y in (("a", "n"), ("b", "y"))]


class Member:
    """A run whose logits are given, of which one alone gets half of the examples right."""

    def __init__(self, name, logits_BC, data=None):
        self.data = data or TaskData(None, (), labels=("n", "y"))
        self.folder = f"runs/{name}"
        self.weights, self.logits_BC = f"step {len(name)}", np.float32(logits_BC)

    def __call__(self, examples):
        return {"logits_BC": self.logits_BC[: len(examples)]}


def test_probabilities_are_averaged_and_scored():
    forward = Member("forward", [[3, 0], [1, 0]])
    backward = Member("backward", [[0, 1], [1000, 1003]])
    blocks, lines, said = [SimpleNamespace(examples=EXAMPLES, notes=[])], [], []
    write = lambda example, line: lines.append(line)  # noqa: E731
    values = predict_blocks(Ensemble([forward, backward]), blocks, write, said.append)
    share = lambda x: 1 / (1 + np.exp(-x))  # noqa: E731
    expected_B = [(share(-3) + share(1)) / 2, (share(-1) + share(3)) / 2]
    np.testing.assert_allclose([x["probabilities"]["y"] for x in lines], expected_B, atol=1e-6)
    assert [x["label"] for x in lines] == ["n", "y"]
    assert values == {"accuracy": 1}
    assert said[-1].endswith("weights of step 7 of runs/forward and step 8 of runs/backward")


def test_runs_of_other_labels_and_tasks_without_probabilities_are_refused():
    one = Member("one", [[1, 0]])
    with pytest.raises(UserError, match="has another task or other labels"):
        Ensemble([one, Member("two", [[1, 0]], TaskData(None, (), labels=("y", "n")))])
    numbers = regress.TaskData(None, ())
    with pytest.raises(UserError, match=r"where task\.name='classify'"):
        Ensemble([Member(x, [[1]], numbers) for x in "ab"])(EXAMPLES)
