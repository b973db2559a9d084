"""Logits of whole rows, as their definition has them."""

import functools
import json
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from modules.heads.classifier import SUMMARIES, Classifier
from modules.layers.params import STATISTICS
from modules.plugins import FieldError
from tests.support.arrays import FIXTURES

BENDS = {
    "tanh": np.tanh,
    "relu": jax.nn.relu,
    "gelu_erf": functools.partial(jax.nn.gelu, approximate=False),
}


@pytest.mark.parametrize("summary", SUMMARIES)
def test_logits_are_those_of_the_summed_summaries_of_an_example_s_rows(summary):
    h_BLD = jax.random.normal(jax.random.key(0), (4, 3, 5))
    pooler = types.SimpleNamespace(pool=lambda x_BD: 2 * x_BD)
    head = Classifier(2, "last", summary, pooler=pooler, scale=1.0)
    valid_BL = np.array([[1, 1, 1], [1, 1, 0], [1, 0, 0], [1, 1, 1]], bool)
    logits_BC, tree = head.init_with_output(jax.random.key(1), h_BLD, valid_BL, 2, train=False)
    params = tree["params"]
    pooled_BD = np.asarray(h_BLD)[np.arange(4), valid_BL.sum(1) - 1]
    if summary == "pooler":
        pooled_BD = 2 * pooled_BD
    elif summary in BENDS:
        pooled_BD = BENDS[summary](pooled_BD @ params["Dense_0"]["kernel"])
    elif summary == "batch_norm":  # by averages that are 0 and variances that are 1
        share = 1 / np.sqrt(1 + 1e-5)
        pooled_BD = share * np.maximum(share * pooled_BD @ params["Dense_0"]["kernel"], 0)
    expected_BC = (pooled_BD[::2] + pooled_BD[1::2]) @ params["w_DC"]
    np.testing.assert_allclose(logits_BC, expected_BC, rtol=1e-5, atol=1e-5)


def test_logits_are_float32_and_an_unknown_summary_is_refused():
    h_BLD = jnp.ones((1, 2, 4), jnp.bfloat16)
    logits_BC, _ = Classifier(3).init_with_output(
        jax.random.key(0), h_BLD, np.ones((1, 2), bool), train=False
    )
    assert logits_BC.dtype == jnp.float32
    with pytest.raises(FieldError, match="summary='mish'"):
        Classifier(3, summary="mish")


def test_without_a_bias_logits_are_the_products_alone():
    h_BLD = jax.random.normal(jax.random.key(0), (2, 3, 4))
    valid_BL = np.ones((2, 3), bool)
    head = Classifier(2, "first", bias=False)
    logits_BC, tree = head.init_with_output(jax.random.key(1), h_BLD, valid_BL, train=False)
    assert tree["params"].keys() == {"w_DC"}
    expected_BC = np.asarray(h_BLD[:, 0]) @ tree["params"]["w_DC"]
    np.testing.assert_allclose(logits_BC, expected_BC, rtol=1e-5, atol=1e-6)


def test_ulmfit_s_head_is_fastai_s():
    # fastai 2.8.12's PoolingLinearClassifier([6, 3, 2], [0, 0], 70) in float64, on padded rows.
    is_array = lambda x: isinstance(x, list)  # noqa: E731
    golden = json.loads((FIXTURES / "ulmfit_head.json").read_text())
    golden = jax.tree.map(np.float32, golden, is_leaf=is_array)
    head = Classifier(2, "concat", "batch_norm", 0.0, U=3, hidden_dropout=0.0)
    valid_BL = np.arange(6) < golden["lengths_B"][:, None]

    def loss(params, h_BLD):
        variables, options = {"params": params}, dict(train=True, mutable=[STATISTICS])
        logits_BC, changed = head.apply(variables, h_BLD, valid_BL, **options)
        return (golden["c_BC"] * logits_BC).sum(), (logits_BC, changed[STATISTICS])

    grad = jax.grad(loss, (0, 1), has_aux=True)
    (grads, grad_BLD), (logits_BC, statistics) = grad(golden["params"], golden["h_BLD"])
    close = lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=2e-5)  # noqa: E731
    close(logits_BC, golden["logits_BC"])
    close(grad_BLD, golden["grad_BLD"])
    close(grads["w_DC"], golden["grad_w_DC"])
    close(grads["Dense_0"]["kernel"], golden["grad_kernel"])
    jax.tree.map(close, statistics, golden["statistics"])
    norms = {name: golden["params"][name] | statistics[name] for name in statistics}
    params = golden["params"] | norms
    evaluated_BC = head.apply({"params": params}, golden["h_BLD"], valid_BL, train=False)
    close(evaluated_BC, golden["evaluated_BC"])
