"""Every switch gives the numbers of the slow reference."""

import functools
import math

import jax
import numpy as np
import pytest

import modules
from modules.masks import Mask
from tests.support import xlnet_reference as reference
from tests.support.compiler import quick_jit
from tests.support.xlnet_inputs import B, P, arguments, backbone, draw_inputs, off

pytestmark = pytest.mark.usefixtures("exactly")

L = 11  # a prime

# name: (the original's flags, what the case needs besides)
CASES = {
    "content alone, relu": (dict(ff_activation="relu"), dict(slots=False)),
    "distances clamped, blocks": (dict(clamp_len=3, mem_len=5), dict(L=12, block=4)),
    "same length, memory": (
        dict(attn_type="uni", same_length=True, mem_len=13),
        dict(slots=False, masked=False),
    ),
    "same length, short memory": (
        dict(attn_type="uni", same_length=True, mem_len=4),
        dict(slots=False, masked=False),
    ),
    "memory longer than the window, three layers, heads as wide as the model": (
        dict(mem_len=17, reuse_len=4, n_layer=3, d_head=8),
        {},
    ),
    "memory shorter than what is reused, one layer": (dict(mem_len=3, reuse_len=7, n_layer=1), {}),
    "biases tied over layers, some queries know their token": (
        dict(untie_r=False),
        dict(mixed=True),
    ),
    "distances clamped, both directions, blocks": (
        dict(clamp_len=3, mem_len=5, bi_data=True),
        dict(L=12, block=3),
    ),
    "left to right and masked": (dict(attn_type="uni", mem_len=5), {}),
    "both directions, memory, reuse": (dict(bi_data=True, mem_len=6, reuse_len=5), {}),
    "a distance table for each example": (
        dict(mem_len=5, bi_data=True),
        dict(L=12, block=4, shared_distances=False),
    ),
}


def draw_case(case):
    """(flags, weights, inputs, fields of ours) of a case."""
    flags, extra = CASES[case]
    fields = {k: x for k, x in extra.items() if k in ("block", "shared_distances")}
    extra = {k: x for k, x in extra.items() if k not in fields}
    cfg, rng = reference.Config(**flags), np.random.default_rng(len(case))
    inputs = draw_inputs(cfg, rng, extra.pop("L", L), **extra)
    return cfg, reference.random_weights(cfg, 1), inputs, fields


def reference_outputs(cfg, weights, inputs):
    rows = [
        reference.transformer(cfg, weights, **{k: x[b] for k, x in inputs.items()})
        for b in range(B)
    ]
    return np.stack([out for out, _ in rows]), [new for _, new in rows]


@pytest.mark.parametrize("case", CASES)
def test_numbers_are_the_reference_s(case):
    cfg, weights, inputs, fields = draw_case(case)
    model, given = backbone(cfg, **fields), arguments(cfg, inputs)
    run = quick_jit(lambda p: model.apply({"params": p}, **given, train=False))
    out = run(reference.ours(weights, cfg))
    states, memories = reference_outputs(cfg, weights, inputs)
    real = slice(-1) if states.shape[1] == P else slice(None)  # the last prediction is none
    assert off(out.h[:, real], states[:, real]) < 2e-6
    if cfg.mem_len:
        assert off(np.moveaxis(np.asarray(out.memory.h_NBMD), 1, 0), np.array(memories)) < 2e-6


# --- how weights begin -----------------------------------------------------------------------


def test_weights_begin_as_the_released_code_does():
    model = modules.build("two_stream", V=500, D=64, H=4, K=16, N=4, F=128)
    init = functools.partial(model.init, mask=Mask(), train=False)
    params = quick_jit(init)(jax.random.key(0), model.example())["params"]
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
    assert not any(x.any() for x in (ffn["bi_F"], ffn["bo_D"]))
