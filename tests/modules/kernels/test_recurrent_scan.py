"""Cells scanned both ways are their reference, values and gradients."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from modules.kernels import dense, recurrent_cells, recurrent_scan
from modules.kernels.recurrent_cells import CellConfig, CellState, CellWeights
from tests.support.compiler import quick_jit
from tests.support.kernel_cases import B, Case, D, L, U, assert_is_reference, forms_of

RNG = np.random.default_rng(0)


def scan_case(config: CellConfig, U: int, **weights) -> Case:
    arrays = {
        "x_ZLBD": RNG.normal(size=(2, L, B, D)),
        "valid_ZLB": RNG.random((2, L, B)) < 0.8,
        "not_reset_ZLB": RNG.random((2, L, B)) < 0.7,
        "h_ZBD": RNG.normal(size=(2, B, weights["wh_ZDGU"].shape[1])),
        **({"c_ZBU": RNG.normal(size=(2, B, U))} if config.cell == "lstm" else {}),
        **weights,
    }

    def operands(a):
        names = ("wx_ZDGU", "wh_ZDGU", "b_ZGU", "bh_ZGU", "wp_ZUD")
        cell_weights = CellWeights(*(a.get(name) for name in names))
        state = CellState(a["h_ZBD"], a.get("c_ZBU"))
        return a["x_ZLBD"], cell_weights, state, a["not_reset_ZLB"], a["valid_ZLB"]

    return Case(
        lambda a: recurrent_scan.scan_directions(config, *operands(a)),
        lambda a: jax.vmap(functools.partial(recurrent_scan.reference, config))(*operands(a)),
        arrays,
        (recurrent_scan, recurrent_cells, dense),
    )


CASES = {
    "lstm": scan_case(
        CellConfig("lstm", clip_cell=0.5, clip_projection=0.4),
        U,
        wx_ZDGU=RNG.normal(size=(2, D, 4, U)),
        wh_ZDGU=RNG.normal(size=(2, D, 4, U)),
        b_ZGU=RNG.normal(size=(2, 4, U)),
        wp_ZUD=RNG.normal(size=(2, U, D)),
    ),
    "gru": scan_case(
        CellConfig("gru"),
        U,
        wx_ZDGU=RNG.normal(size=(2, D, 3, U)),
        wh_ZDGU=RNG.normal(size=(2, U, 3, U)),
        b_ZGU=RNG.normal(size=(2, 3, U)),
        bh_ZGU=RNG.normal(size=(2, 3, U)),
    ),
    "rnn": scan_case(
        CellConfig("rnn", activation="relu"),
        U,
        wx_ZDGU=RNG.normal(size=(2, D, 1, U)),
        wh_ZDGU=0.5 * RNG.normal(size=(2, U, 1, U)),
        b_ZGU=RNG.normal(size=(2, 1, U)),
    ),
}
FORMS = [(name, form) for name, case in CASES.items() for form in forms_of(case)]


@pytest.mark.parametrize("devices", [1, 8])
@pytest.mark.parametrize(("name", "form"), FORMS)
def test_values_and_gradients_are_the_reference_s(name, form, devices, monkeypatch):
    assert_is_reference(CASES[name], form, devices, monkeypatch)


@pytest.mark.parametrize("form", sorted(recurrent_scan.FORMS))
def test_states_in_bfloat16_are_added_up_in_float32(form):
    """A hundred times a bit less than bfloat16's last digit comes to a cell of 1."""
    steps, near = 100, jnp.bfloat16
    # The gates "in", "forget" and "out" are open.
    b_ZGU = jnp.broadcast_to(jnp.array([20, 1 / 512, 20, 20.0])[:, None], (1, 4, U))
    weights = CellWeights(jnp.zeros((1, D, 4, U), near), jnp.zeros((1, U, 4, U), near), b_ZGU)
    state = CellState(jnp.zeros((1, B, U)), jnp.ones((1, B, U)))
    scan = functools.partial(recurrent_scan.FORMS[form], CellConfig("lstm"))
    x_ZLBD = jnp.zeros((1, steps, B, D), near)
    y_ZLBU, state = quick_jit(scan)(x_ZLBD, weights, state, None, None)
    assert (y_ZLBU.dtype, state.h_BD.dtype, state.c_BU.dtype) == (near, "float32", "float32")
    np.testing.assert_allclose(state.c_BU, 1 + steps * np.tanh(1 / 512), rtol=1e-5)
