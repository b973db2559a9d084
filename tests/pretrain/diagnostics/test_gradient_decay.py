"""Gradients by distance: those of the Jacobian's products, and exact where the cell is linear."""

import functools
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from modules.kernels import recurrent_scan
from modules.layers.rnn import Recurrent
from pretrain.diagnostics.gradient_decay import measure_cell, measure_input_gradients
from pretrain.diagnostics.measurements import fit_slope

T, B, U = 5, 1, 3


def test_gradients_are_those_of_the_jacobian_by_forward_mode():
    with jax.enable_x64(True):
        layer, rng = Recurrent(U, dtype="float64"), np.random.default_rng(0)
        x_BLD, v_BD = rng.normal(size=(B, T, U)), rng.normal(size=(B, U))
        params = layer.init(jax.random.key(0), x_BLD)
        read = lambda x_BLD: layer.apply(params, x_BLD)[1].h_BZD[:, 0]  # noqa: E731
        found_BL = measure_input_gradients(read, x_BLD, v_BD)
        # Forward mode does not pass through the gradient that is written out.
        with mock.patch.object(recurrent_scan, "scan_cell", recurrent_scan.reference):
            jacobian_UBLD = np.asarray(jax.jacfwd(read)(x_BLD))[0]
    expected_BL = np.linalg.norm(np.einsum("U,UBLD->BLD", v_BD[0], jacobian_UBLD), axis=-1)
    np.testing.assert_allclose(found_BL, expected_BL, rtol=1e-11)


@pytest.mark.parametrize("rho", [0.7, 1.0, 1.3])
def test_the_slope_of_a_linear_orthogonal_cell_is_ln_rho(rho):
    with jax.enable_x64(True):
        rng = np.random.default_rng(0)
        w_UU = rho * np.linalg.qr(rng.normal(size=(U, U)))[0]
        x_BLD, v_BD = rng.normal(size=(B, 10, U)), rng.normal(size=(B, U))
        read = lambda x_BLD: functools.reduce(  # noqa: E731
            lambda h_BD, x_BD: h_BD @ w_UU + x_BD, jnp.moveaxis(x_BLD, 1, 0)
        )
        norm_BL = np.asarray(measure_input_gradients(read, x_BLD, v_BD))
    np.testing.assert_allclose(fit_slope(norm_BL.mean(0)[::-1]), np.log(rho), atol=1e-12)


def test_gradients_of_a_plain_cell_fall_below_the_bound_of_their_weights():
    where = dict(seed=0, T=30, U=16, B=4, kind="orthogonal", radius=0.9)
    decay = measure_cell(dict(cell="rnn"), **where)
    assert decay.norm_T.shape == (30,)
    np.testing.assert_allclose([decay.sigma, decay.radius], 0.9, rtol=1e-5)
    assert decay.slope < np.log(0.9)
