"""Recurrent weights are drawn with the spectrum asked for."""

import jax
import numpy as np

from pretrain.diagnostics.recurrent_weights import compute_spectrum, set_recurrent_weights


def test_orthogonal_recurrent_weights_have_equal_singular_values():
    tree = {"recurrent": {"wh_ZDGU": np.zeros((2, 6, 3, 6), np.float32)}, "b": np.ones(1)}
    drawn = set_recurrent_weights(tree, jax.random.key(0), "orthogonal", 1.5)
    w_ZGDU = np.moveaxis(np.asarray(drawn["recurrent"]["wh_ZDGU"]), 2, 1)
    np.testing.assert_allclose(np.linalg.svd(w_ZGDU)[1], 1.5, rtol=1e-5)
    assert drawn["b"] is tree["b"]


def test_the_spectrum_is_of_the_gate_with_the_largest():
    rotation, shear = np.array([[0.0, 2.0], [-2.0, 0.0]]), np.array([[1.0, 3.0], [0.0, 1.0]])
    sigma, radius = compute_spectrum(np.stack([rotation, shear], 1)[None])
    np.testing.assert_allclose(sigma, np.linalg.svd(shear)[1].max())
    np.testing.assert_allclose(radius, 2)
