"""Numbers are learned by squared error and judged by correlation."""

import numpy as np
import pytest

from finetune.tasks import regress
from pretrain.runtime.errors import UserError
from tests.support import text_tasks
from tests.support.text_tasks import EXAMPLES, build

NUMBERED = [x | {"label": str(n)} for n, x in enumerate(EXAMPLES)]


def test_the_loss_is_the_squared_error_of_known_numbers():
    case = build(text_tasks.bert(), regress, NUMBERED)
    metrics, outputs = case.run(case.params, case.batch)
    values_B = np.asarray(outputs["value_B"])
    errors_B = np.square(values_B - np.arange(4))
    assert float(metrics["loss"].total) == pytest.approx(errors_B.sum(), rel=1e-4)
    assert metrics["loss"].weight == 4
    unknown = case.data.arrays([*NUMBERED[:2], *(x | {"label": None} for x in NUMBERED[2:])])
    unknown["weight_B"] = case.batch["weight_B"]
    loss = case.run(case.params, unknown)[0]["loss"]
    assert float(loss.total) == pytest.approx(errors_B[:2].sum(), rel=1e-4)
    assert loss.weight == 2
    scores = case.data.scores(NUMBERED, {"value_B": values_B})
    assert scores["pearson"] == pytest.approx(np.corrcoef(values_B, np.arange(4))[0, 1], rel=1e-4)


def test_a_label_that_is_no_number_is_refused():
    data = regress.TaskData(text_tasks.bert()[0], [])
    with pytest.raises(UserError, match="row 1: label 'much' is no number"):
        data.arrays([EXAMPLES[0] | {"label": "much"}])
