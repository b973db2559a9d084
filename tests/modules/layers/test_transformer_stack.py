"""Layers in training: how weights begin, what is dropped, what a step costs."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from modules.activation_sharding import sharding_context
from modules.heads import language_model
from modules.kernels import softmax_cross_entropy
from modules.layers.attention import Block
from modules.layers.params import zeros
from modules.masks import Mask, make_view
from pretrain.distributed.sharding import Layout, make_mesh
from tests.support import transformer_inputs as cases
from tests.support.arrays import draw
from tests.support.compiler import quick_jit
from tests.support.jaxpr import programs_of
from tests.support.xlnet_inputs import off

pytestmark = pytest.mark.usefixtures("exactly")

B, L = 2, 8
TOKENS_BL = cases.tokens(B, L)
RNGS = {"dropout": jax.random.key(0)}


# --- how weights begin -----------------------------------------------------------------------


def begun(**fields):
    model = cases.tiny(V=600, D=64, H=4, K=16, F=128, N=4, L=150, **fields)
    init = quick_jit(model.init, static_argnames="train")
    return init(jax.random.key(0), TOKENS_BL, mask=Mask(), train=False)["params"]


def deviates(x, expected):
    return abs(float(np.std(x)) / expected - 1) > 4 / math.sqrt(2 * x.size)


def test_gpt2_begins_smaller_where_it_returns_to_the_sum():
    params = begun(**cases.GPT2, residual_scale=True, position_scale=0.01)
    attention, ffn = params["layers"]["attention"], params["layers"]["ffn"]
    for x in (params["token_VD"], ffn["wi_DF"], *(attention[f"w{n}_DHK"] for n in "qkv")):
        assert not deviates(x, 0.02)
    for x in (attention["wo_HKD"], ffn["wo_FD"]):
        assert not deviates(x, 0.02 / math.sqrt(2 * 4))
    assert not deviates(params["position_LD"], 0.01)
    assert np.abs(params["token_VD"]).max() > 3.5 * 0.02


def test_bert_begins_within_two_deviations():
    params = begun(**cases.BERT, initializer="truncated")
    attention, ffn = params["layers"]["attention"], params["layers"]["ffn"]
    drawn = [params[name] for name in ("token_VD", "position_LD", "pool_DD")]
    drawn += [attention[f"w{n}"] for n in ("q_DHK", "k_DHK", "v_DHK", "o_HKD")]
    for x in (*drawn, ffn["wi_DF"], ffn["wo_FD"]):
        assert np.abs(x).max() <= 2 * 0.02 + 1e-7
        assert abs(float(np.std(x)) / (0.8796 * 0.02) - 1) < 4 / math.sqrt(2 * x.size)
    biases = [x for name, x in (*attention.items(), *ffn.items()) if name.startswith("b")]
    assert len(biases) == 6
    assert not any(x.any() for x in biases)


# --- dropout ---------------------------------------------------------------------------------


@pytest.mark.parametrize("silent", ["attention", "ffn"])
def test_a_block_drops_from_the_two_sums_it_makes_and_nowhere_else(silent):
    params = jax.tree.map(lambda x: x[0], cases.draw(cases.tiny(N=1, **cases.GPT2))["layers"])
    for name in {"attention": ("wo_HKD", "bo_D"), "ffn": ("wo_FD", "bo_D")}[silent]:
        params[silent] |= {name: jnp.zeros_like(params[silent][name])}
    x_BLD, view = draw(B, L, 16), make_view(Mask(is_causal=True), L)
    rates = dict(dropout=0.5, attention_dropout=0.0)
    inits = dict(kernel_init=zeros, output_init=zeros)
    fields = dict(H=2, K=8, F=24, pre_norm=True, activation="gelu", epsilon=1e-5, dtype="float32")
    apply = functools.partial(
        Block(**fields, **rates, **inits).apply, {"params": params}, x_BLD, view
    )
    both = quick_jit(lambda: [apply(train=t, rngs=RNGS)[0] - x_BLD for t in (False, True)])
    whole, dropped = (np.asarray(x) for x in both())
    kept = dropped != 0
    assert 0.4 < kept.mean() < 0.6
    np.testing.assert_allclose(dropped[kept], 2 * whole[kept], rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("fields", [cases.GPT1, cases.BERT])
def test_the_embedding_is_dropped_once_it_is_normed(fields):
    model = cases.tiny(N=0, dropout=0.5, **fields)
    params = cases.draw(model)
    apply = functools.partial(model.apply, {"params": params}, TOKENS_BL, mask=Mask(), rngs=RNGS)
    both = quick_jit(lambda: [apply(train=train).h for train in (False, True)])
    whole, dropped = (np.asarray(x) for x in both())
    kept = dropped != 0
    assert 0.35 < kept.mean() < 0.65
    np.testing.assert_allclose(dropped[kept], 2 * whole[kept], rtol=1e-6)


def test_attention_dropout_is_a_rate_of_its_own():
    params = cases.draw(cases.tiny())

    def states(params, key, train):
        model, rngs = cases.tiny(attention_dropout=0.5), {"dropout": key}
        return model.apply({"params": params}, TOKENS_BL, mask=Mask(), train=train, rngs=rngs).h

    run = quick_jit(states, static_argnums=2)
    still, moved, again = (
        run(params, jax.random.key(key), train) for key, train in ((0, False), (0, True), (1, True))
    )
    np.testing.assert_array_equal(run(params, jax.random.key(1), False), still)
    assert (moved != still).any(-1).all()
    assert (moved != again).any()


# --- what changes nothing --------------------------------------------------------------------


def loss_and_grads(params, **fields):
    model = cases.tiny(**cases.GPT2, **fields)

    def loss(params):
        args = dict(slots_BP=np.array([[1, 5], [7, 0]]), train=True, rngs=RNGS)
        h_BPD = model.apply({"params": params}, TOKENS_BL, mask=Mask(is_causal=True), **args).h
        return jnp.square(h_BPD + 1).sum()

    return quick_jit(jax.value_and_grad(loss))(params)


MORE = pytest.param(dict(remat="full", unroll=2), marks=pytest.mark.slow)


@pytest.mark.parametrize("fields", [dict(remat="dots", unroll=2), MORE])
def test_remat_and_unrolling_repeat_loss_gradients_and_dropout(fields):
    rates = dict(dropout=0.3, attention_dropout=0.3)
    params = cases.draw(cases.tiny(**cases.GPT2))
    value, grads = loss_and_grads(params, **rates)
    again, again_grads = loss_and_grads(params, **rates, **fields)
    assert off(again, value) < 2e-6
    assert cases.slopes_off(again_grads, grads) < 1e-5


BARE_BERT = cases.BERT | dict(pooler=False)
SPLIT = {  # fields, positions of a row, positions that are read
    "gpt2": (cases.GPT2, L, None),
    "bert, few are read": (
        cases.BERT | dict(pooler=False),
        L,
        np.array([[1, 5, 2, 0], [7, 0, 3, 1]] * 2),
    ),
    "gpt2, neither divides": (cases.GPT2, L - 1, np.array([[1, 5, 2], [6, 0, 3]] * 2)),
}


@pytest.mark.parametrize("case", SPLIT)
def test_devices_that_share_positions_repeat_loss_gradients_and_dropout(case):
    fields, length, slots_BP = SPLIT[case]
    model = cases.tiny(dropout=0.3, attention_dropout=0.3, **fields)
    tokens_BL = cases.tokens(2 * B, length)

    def loss(params):
        args = dict(mask=Mask(), slots_BP=slots_BP, train=True, rngs=RNGS)
        return jnp.square(model.apply({"params": params}, tokens_BL, **args).h + 1).sum()

    params, layout = cases.draw(model), Layout(make_mesh(2, 1, 2, devices=jax.devices()[:4]))
    value, grads = quick_jit(jax.value_and_grad(loss))(params)
    with sharding_context(layout):
        shared, shared_grads = jax.jit(jax.value_and_grad(lambda params: loss(params)))(params)
    assert off(shared, value) < 2e-6
    assert cases.slopes_off(shared_grads, grads) < 1e-5


@pytest.mark.parametrize("fields", [cases.BERT, pytest.param(cases.GPT2, marks=pytest.mark.slow)])
def test_bfloat16_is_near_float32(fields):
    params = cases.draw(cases.tiny(**fields), scale=0.1)
    exact, half = (
        quick_jit(cases.forward(cases.tiny(**fields, dtype=dtype), TOKENS_BL))(params)
        for dtype in ("float32", "bfloat16")
    )
    assert half.dtype == jnp.bfloat16
    assert off(half, np.asarray(exact, np.float64)) < 2e-2


# --- what a step costs -----------------------------------------------------------------------


def products(jaxpr, times=1):
    """Floating-point operations of all products in this program and those inside it."""
    total = 0
    for eqn in jaxpr.eqns:
        if eqn.primitive.name == "dot_general":
            (contracted, _), _ = eqn.params["dimension_numbers"]
            depth = math.prod(eqn.invars[0].aval.shape[i] for i in contracted)
            total += times * 2 * math.prod(eqn.outvars[0].aval.shape) * depth
        inner = times * eqn.params["length"] if eqn.primitive.name == "scan" else times
        # Of the ways platforms go, one.
        programs = programs_of(eqn)[: 1 if "branches" in eqn.params else None]
        total += sum(products(x, inner) for x in programs)
    return total


def executed(model, P, **head):
    """Products of the gradient of a loss at the first P positions."""
    slots_BP = np.tile(np.arange(P), (B, 1))

    def loss(params):
        bound = model.bind({"params": params})
        h_BPD = bound(TOKENS_BL, mask=Mask(), slots_BP=slots_BP, train=False).h
        args = (h_BPD, slots_BP, jnp.ones((B, P)))
        return cases.read_by_head(model, params, "cross_entropy", *args, **head)["loss"].total

    return products(jax.make_jaxpr(jax.grad(loss))(cases.draw(model, **head)).jaxpr)


@pytest.mark.parametrize(("P", "head"), [(2, {}), (L, cases.BERT_HEAD)])
def test_flops_are_the_products_a_step_executes(P, head, monkeypatch):
    # A sum that a CPU computes by a product is none of the model's.
    sums = softmax_cross_entropy.SUMS
    monkeypatch.setitem(sums, "cpu", sums["default"])
    model = cases.tiny()
    own = language_model.build(model, **head)
    assert model.flops(B, L, P) + own.flops(B * P) == executed(model, P, **head)


@pytest.mark.parametrize("window", [0, 3])
def test_flops_count_only_the_scores_of_what_is_seen(window):
    model = cases.tiny(attention="causal", window=window, N=4, L=512)
    L, A = 512, model.H * model.K
    seen_L = np.arange(1, L + 1)
    near_L = np.minimum(seen_L, window) if window else seen_L
    pairs = 2 * seen_L.sum() + 2 * near_L.sum()
    everything = cases.tiny(N=4, L=512).flops(B, L, L)
    expected = everything - 12 * B * A * (4 * L * L - pairs)
    assert model.flops(B, L, L) == pytest.approx(expected, rel=2e-3)
