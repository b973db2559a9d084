"""A pair's classes are told by its two vectors, put together as the papers do."""

import jax
import numpy as np
import pytest

from modules.heads.pair_classifier import PairClassifier
from modules.plugins import FieldError

U_BD, V_BD = np.random.default_rng(0).normal(0, 1, (2, 3, 4)).astype("f")
PARTS = {
    "difference": [U_BD, V_BD, abs(U_BD - V_BD)],
    "max_square": [U_BD, V_BD, abs(U_BD - V_BD), np.maximum(U_BD, V_BD) ** 2],
}


@pytest.mark.parametrize("features", PARTS)
def test_logits_are_linear_in_the_features(features):
    x_BD = np.concatenate(PARTS[features], 1)
    params = {"w_DC": np.ones((x_BD.shape[1], 2), "f") * [1, 0.5], "bias_C": np.array([0, 1.0])}
    logits_BC = PairClassifier(2, features).apply({"params": params}, U_BD, V_BD, train=True)
    np.testing.assert_allclose(logits_BC, x_BD @ params["w_DC"] + params["bias_C"], rtol=1e-5)
    init = lambda key: PairClassifier(2, features).init(key, U_BD, V_BD, train=True)  # noqa: E731
    shapes = jax.eval_shape(init, jax.random.key(0))["params"]
    assert shapes["w_DC"].shape == params["w_DC"].shape


def test_other_features_are_refused():
    with pytest.raises(FieldError, match="features='product' is none of difference"):
        PairClassifier(2, "product")
