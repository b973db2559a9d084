"""Gradients of trained runs are those by the inputs, and of the tokens before the last."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from modules.backbones import text_mask
from pretrain.diagnostics.run_gradients import measure_rows, measure_run
from pretrain.runtime.errors import UserError
from tests.support.tiny_models import draw_params

pytest_plugins = ["tests.support.tiny_models"]
WORDS = "the state of the union is not what we were and so on "


@pytest.mark.parametrize("kind", ["clm", pytest.param("plm", marks=pytest.mark.slow)])
def test_gradients_by_inputs_are_those_by_rows_of_the_table(run, kind):
    backbone = run(kind).backbone
    params, last = draw_params(backbone), 5
    tokens_BL = np.random.default_rng(0).permutation(20)[None, :8]  # each stands once
    norm_BL = measure_rows(backbone, params, tokens_BL, None, last, jax.random.key(3))

    def loss(table_VD):
        variables = {"params": params | {"token_VD": table_VD}}
        h_BLD = backbone.apply(variables, tokens_BL, mask=text_mask(backbone), train=False).h
        v_BD = jax.random.normal(jax.random.key(3), h_BLD[:, last].shape)
        return (v_BD / jnp.linalg.norm(v_BD) * h_BLD[:, last]).sum()

    dtable_VD = jax.grad(loss)(params["token_VD"])
    expected_L = np.linalg.norm(dtable_VD[tokens_BL[0]], axis=-1)
    np.testing.assert_allclose(norm_BL[0], expected_L, rtol=1e-5, atol=1e-7)
    assert (expected_L[: last + 1] > 0).all()
    assert not backbone.is_causal or not expected_L[last + 1 :].any()


@pytest.mark.parametrize("kind", ["mlm", "bilm"])
def test_a_runs_gradients_reach_every_token_before_the_last(run, kind, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text(8 * f"{WORDS}\n")
    params = draw_params(run(kind).backbone)
    decay = measure_run(run(kind), params, text=str(text), T=6, B=2, seed=0)
    assert decay.norm_T.shape == (6,)
    assert (decay.norm_T > 0).all()


def test_a_text_shorter_than_a_row_is_refused(run, tmp_path):
    (tmp_path / "short.txt").write_text("We .\n")
    with pytest.raises(UserError, match="name a longer text"):
        measure_run(run("clm"), {}, text=str(tmp_path / "short.txt"), T=30, B=1, seed=0)
