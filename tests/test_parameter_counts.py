"""The parameter counts are the published ones, and weights begin as the original's do."""

import json
import math
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import modules
from configs import xlnet
from tests.xlnet_cases import quick_jit

GOLDEN = json.loads((pathlib.Path(__file__).parent / "fixtures" / "golden.json").read_text())


def parameters(**fields):
    model = modules.build(**fields)
    tokens_BL = jnp.zeros((1, 8), jnp.int32)
    return model, lambda: model.init(jax.random.key(0), tokens_BL, train=False)["params"]


@pytest.mark.parametrize("preset", ["base", "large"])
def test_xlnet_has_as_many_parameters_as_published(preset):
    _, init = parameters(**xlnet.get_config(preset).model)
    shapes = jax.eval_shape(init)
    count = sum(math.prod(x.shape) for x in jax.tree.leaves(shapes))
    golden = GOLDEN[f"params_xlnet_{preset}"]
    assert count == golden["with_lm_bias"]
    assert count - shapes["bias_V"].size == golden["transformer"]
    assert {x.dtype for x in jax.tree.leaves(shapes)} == {jnp.dtype("float32")}


def test_xlnet_begins_as_the_released_code_does():
    _, init = parameters(name="two_stream", V=500, D=64, H=4, K=16, N=4, F=128)
    params = quick_jit(init)()
    attention = params["layers"]["attention"]
    normal = [params["token_VD"], attention["segment_SHK"], *attention["biases"].values()]
    normal += [attention[f"w{name}"] for name in ("q_DHK", "k_DHK", "v_DHK", "r_DHK", "o_HKD")]
    normal += [params["layers"]["ffn"][name] for name in ("wi_DF", "wo_FD")]
    for x in normal:
        assert abs(np.std(x) / 0.02 - 1) < 4 / math.sqrt(2 * x.size)
    limit = math.sqrt(6 / (1 + 64))  # TensorFlow's default, for a variable of shape [1, D]
    query_1D = np.abs(params["query_1D"])
    assert 0.9 * limit < query_1D.max() <= limit
    for norm in ("attention_norm", "ffn_norm"):
        assert (params["layers"][norm]["scale_D"] == 1).all()
        assert not params["layers"][norm]["bias_D"].any()
    ffn = params["layers"]["ffn"]
    assert not any(x.any() for x in (params["bias_V"], ffn["bi_F"], ffn["bo_D"]))
