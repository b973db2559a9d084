"""Batch normalisation as PyTorch's, and of real rows alone."""

import functools
import json

import jax
import jax.numpy as jnp
import numpy as np

from modules.layers.batch_norm import BatchNorm
from modules.layers.params import STATISTICS
from tests.support.arrays import FIXTURES

# torch.nn.BatchNorm1d(3, momentum=0.1) in float64: three batches in training, one in evaluation.
GOLDEN = json.loads((FIXTURES / "batch_norm.json").read_text())
DRAWN = {name: np.float32(x) for name, x in GOLDEN["params"].items()}


def apply(params, x_BD, weight_B=None, *, train=True):
    """(outputs, the parameters with the new statistics)."""
    run = functools.partial(BatchNorm().apply, train=train, mutable=[STATISTICS])
    y_BD, changed = run({"params": params}, x_BD, weight_B)
    return y_BD, params | changed.get(STATISTICS, {})


def test_outputs_gradients_and_running_averages_are_pytorch_s():
    params = dict(DRAWN, mean_D=np.zeros(3, "f"), variance_D=np.ones(3, "f"))
    for batch in GOLDEN["batches"]:
        x_BD, c_BD = np.float32(batch["x_BD"]), np.float32(batch["c_BD"])
        loss = lambda p, x, c=c_BD: (jnp.sum(c * apply(p, x)[0]), apply(p, x))  # noqa: E731
        grads, (y_BD, params) = jax.grad(loss, (0, 1), has_aux=True)(params, x_BD)
        np.testing.assert_allclose(y_BD, batch["y_BD"], atol=5e-5)
        np.testing.assert_allclose(grads[1], batch["grad_BD"], rtol=2e-5, atol=2e-5)
        for name in ("scale_D", "bias_D"):
            np.testing.assert_allclose(grads[0][name], batch[f"grad_{name}"], rtol=2e-5, atol=2e-5)
        for name in ("mean_D", "variance_D"):
            assert not grads[0][name].any()
            np.testing.assert_allclose(params[name], batch[name], rtol=1e-5, atol=1e-6)
    x_BD, y_BD = (np.float32(GOLDEN["evaluation"][name]) for name in ("x_BD", "y_BD"))
    found_BD, after = apply(params, x_BD, train=False)
    np.testing.assert_allclose(found_BD, y_BD, atol=5e-5)
    jax.tree.map(np.testing.assert_array_equal, after, params)


def test_rows_that_fill_a_batch_up_change_nothing():
    x_BD = np.float32(GOLDEN["batches"][0]["x_BD"])
    params = dict(DRAWN, mean_D=np.ones(3, "f"), variance_D=np.ones(3, "f"))
    alone_BD, alone = apply(params, x_BD)
    filled_BD = np.concatenate([np.full((2, 3), 1e3, "f"), x_BD])
    weight_B = np.float32([0, 0] + [2] * len(x_BD))
    found_BD, found = apply(params, filled_BD, weight_B)
    np.testing.assert_allclose(found_BD[2:], alone_BD, atol=1e-6)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), alone, found)
    _, nothing = apply(params, x_BD, np.zeros(len(x_BD), "f"))
    jax.tree.map(np.testing.assert_array_equal, nothing, params)
