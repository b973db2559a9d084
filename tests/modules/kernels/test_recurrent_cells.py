"""A cell's step backwards is the gradient of its step."""

import jax
import numpy as np
import pytest

from modules.kernels.recurrent_cells import CELLS, CellConfig, CellState
from tests.support.kernel_cases import B, U


@pytest.mark.parametrize("name", CELLS)
def test_a_step_backwards_is_the_gradient_of_the_step(name):
    rng, cell = np.random.default_rng(0), CELLS[name]
    config = CellConfig(name, clip_cell=0.5 if name == "lstm" else 0.0)
    a_BGU, r_BGU = rng.normal(size=(2, B, cell.G, U))
    state = CellState(rng.normal(size=(B, U)), rng.normal(size=(B, U)) if name == "lstm" else None)
    with jax.enable_x64(True):
        outputs, pull, residuals = jax.vjp(
            lambda *given: ((step := cell.forward(config, *given))[:2], step[2]),
            *(a_BGU, r_BGU, state),
            has_aux=True,
        )
        slopes = jax.tree.map(lambda x: rng.normal(size=x.shape), outputs)
        expected = pull(slopes)
        found = cell.backward(config, residuals, state, *slopes)
        shared = found.a_BGU if found.r_BGU is None else found.r_BGU
        for ours, theirs in zip((found.a_BGU, shared, found.state), expected, strict=True):
            jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=1e-12), ours, theirs)


@pytest.mark.parametrize("name", [name for name, cell in CELLS.items() if cell.activate])
def test_residuals_in_one_array_are_those_of_the_step(name):
    a_BGU, r_BGU = np.random.default_rng(1).normal(size=(2, B, CELLS[name].G, U)).astype("f")
    state = CellState(np.zeros((B, U), "f"), np.ones((B, U), "f"))
    residuals = CELLS[name].forward(CellConfig(name), a_BGU, r_BGU, state)[2]
    together_BGU = CELLS[name].activate(a_BGU + r_BGU)
    np.testing.assert_allclose(together_BGU, np.stack(residuals, 1), rtol=1e-6)
