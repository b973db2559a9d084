"""A student learns the labels, and a teacher's soft labels and states, by their definitions."""

import jax
import numpy as np
import pytest

from finetune import job
from finetune.tasks import distil
from pretrain.checkpoint.manager import Checkpoints
from pretrain.runtime.errors import UserError
from tests.finetune.prediction import test_predictor
from tests.support import text_tasks
from tests.support.arrays import draw
from tests.support.compiler import quick_jit
from tests.support.tagging_data import add_weights

LOSS = dict(temperature=2.0, soft=0.25, hidden=3.0)
EXAMPLES = [{"texts": [text], "label": label, "where": text} for text, label in test_predictor.ROWS]


def test_the_loss_is_the_sum_of_labels_soft_labels_and_states():
    host = dict(teacher="runs/none", layers=(1,))
    case = text_tasks.build(text_tasks.bert(), kind=distil, host=host, loss=LOSS)
    D = case.task.backbone.D
    taught = {"soft_BC": draw(4, 2), "hidden_BND": draw(4, 1, D, seed=1)}
    batch = case.batch | taught | {"weight_B": np.float32([1, 0, 1, 1])}

    @quick_jit
    def run(params):
        task = case.task.bind({"params": params}, rngs={"dropout": jax.random.key(0)})
        states = task.encoder(batch, train=False)
        return task(batch, train=True), task(batch, train=False), task.predict(batch), states

    metrics, plain, outputs, h_BLD = jax.device_get(run(case.params))
    own, soft = (x.astype(float) / 2 for x in (outputs["logits_BC"], taught["soft_BC"]))
    log = own - np.log(np.exp(own).sum(1, keepdims=True))
    share = np.exp(soft) / np.exp(soft).sum(1, keepdims=True)
    unit = lambda x: x / np.linalg.norm(x, axis=-1, keepdims=True)  # noqa: E731
    apart = np.square(unit(h_BLD[:, 0]) - unit(taught["hidden_BND"][:, 0])).sum(1)
    expected = {
        "loss": 0.75 * plain["loss"].total,
        "soft_loss": 0.25 * 4 * -(share * log).sum(1)[[0, 2, 3]].sum(),
        "hidden_loss": 3 * apart[[0, 2, 3]].sum(),
    }
    for name, total in expected.items():
        assert metrics[name].total == pytest.approx(total, rel=1e-4)
        assert (metrics[name].weight, metrics[name].train) == (3, True)
    assert plain.keys() == {"loss", "accuracy"}


def test_more_layers_than_a_student_has_learn_no_states():
    with pytest.raises(UserError, match=r"task\.layers: 2 layers learn states"):
        text_tasks.build(
            text_tasks.bert(), kind=distil, host=dict(teacher="runs/none", layers=(1, 1))
        )


@pytest.mark.slow
def test_a_run_teaches_its_logits_and_its_states(tmp_path):
    folder = test_predictor.workdir(tmp_path)
    tuned = job.load_job(folder)
    host = dict(teacher=str(folder), layers=(1,), labels=["n", "y"])
    data = distil.TaskData(tuned.data.inputs, EXAMPLES, **host)
    arrays = data.training_arrays(EXAMPLES)
    kept = Checkpoints(folder / "best", asynchronous=False)
    rows = add_weights(tuned.data.arrays(EXAMPLES))
    like = jax.eval_shape(lambda: tuned.task.init(jax.random.key(0), rows, train=False))
    params = kept.restore({"params": like["params"]})[0]["params"]
    bound = tuned.task.bind({"params": params})
    np.testing.assert_allclose(arrays["soft_BC"], bound.predict(rows)["logits_BC"], rtol=1e-5)
    states_BD = bound.encoder(rows, train=False)[:, 0]
    np.testing.assert_allclose(arrays["hidden_BND"][:, 0], states_BD, rtol=1e-4, atol=1e-5)
    for fields, message in (
        (dict(labels=["y", "n"]), "does not tell"),
        (dict(layers=(2,)), "the teacher has no layer 2"),
    ):
        other = distil.TaskData(tuned.data.inputs, EXAMPLES, **host | fields)
        with pytest.raises(UserError, match=message):
            other.training_arrays(EXAMPLES)
