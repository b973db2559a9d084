"""Steps by hand, and what decays, rests or learns slower."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

import modules
from modules.layers.params import ParamInfo, param, recording
from modules.masks import Mask
from pretrain.runtime.errors import UserError
from pretrain.training import optimizer
from pretrain.training.row_updates import EntrywiseTransformation
from tests.support.compiler import quick_jit

LR, B1, B2, EPS = 0.1, 0.9, 0.99, 1e-3


def test_an_unknown_name_says_what_there_is():
    with pytest.raises(UserError, match=r"optim\.name='lion' is none of adamw, lamb, adagrad"):
        optimizer.make(name="lion", lr=1, steps=1)


# --- rules -----------------------------------------------------------------------------------


def tree(seed):
    """Two stacked layers, an embedding and a norm, large and small."""
    rng = np.random.default_rng(seed)
    shapes = {"w_DF": (2, 3, 4), "norm": {"scale_D": (2, 3)}}
    draw = lambda shape: rng.normal(0, rng.choice([0.1, 5]), shape)  # noqa: E731
    layers = jax.tree.map(draw, shapes, is_leaf=lambda x: isinstance(x, tuple))
    return {"backbone": {"layers": layers, "token_VD": draw((5, 3))}}


GRADS = [tree(seed) for seed in (1, 2, 3)]
INFOS = {
    "backbone": {
        "layers": {
            "w_DF": ParamInfo(decay=True, layers_above=(1, 0)),
            "norm": {"scale_D": ParamInfo(decay=False, layers_above=(1, 0))},
        },
        "token_VD": ParamInfo(decay=True, layers_above=2),
    }
}


def steps(params, norm=1.0, weight=1.0, **section):
    """Parameters after three steps of a constant rate, from our optimiser."""
    tx, _ = optimizer.make(lr=LR, steps=3, decay="constant", **section)
    params = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), params)
    tx = optimizer.with_infos(tx, INFOS)
    opt, update = tx.init(params), quick_jit(tx.update)
    for grads in GRADS:
        grads = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), grads)
        updates, opt = update(grads, opt, params, norm=norm, weight=weight)
        params = jax.tree.map(jnp.add, params, updates)
    return params


def by_hand(params, direction):
    """The same, leaf by leaf: `direction(name, t, p, m, v)` is what LR is multiplied with."""

    def leaf(path, p, *grads):
        m = v = np.zeros_like(p)
        for t, g in enumerate(grads, 1):
            m, v = B1 * m + (1 - B1) * g, B2 * v + (1 - B2) * g**2
            p = p - LR * direction(optimizer.path_name(path), t, p, m, v)
        return p

    return jax.tree_util.tree_map_with_path(leaf, params, *GRADS)


def same(a, b, rtol=2e-5):
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=rtol, atol=1e-6), a, b)


def paper(t, m, v):
    return (m / (1 - B1**t)) / (np.sqrt(v / (1 - B2**t)) + EPS)


def epsilon_hat(t, m, v):
    return math.sqrt(1 - B2**t) / (1 - B1**t) * m / (np.sqrt(v) + EPS)


def uncorrected(t, m, v):
    return m / (np.sqrt(v) + EPS)


ADAMS = {
    "the paper's": (dict(), paper),
    "TensorFlow's": (dict(eps_hat=True), epsilon_hat),
    "BERT's and XLNet's": (dict(bias_correction=False), uncorrected),
}


@pytest.mark.parametrize("variant", ADAMS)
def test_three_steps_of_adam_are_those_by_hand(variant):
    flags, rule = ADAMS[variant]

    def direction(name, t, p, m, v):
        return rule(t, m, v) + (0 if "norm" in name else 0.3) * p

    found = steps(tree(0), b1=B1, b2=B2, eps=EPS, weight_decay=0.3, **flags)
    same(found, by_hand(tree(0), direction))


def test_three_steps_of_lamb_take_each_layer_of_a_stack_by_itself():
    def direction(name, t, p, m, v):
        if "norm" in name:
            return paper(t, m, v)
        u = paper(t, m, v) + 0.3 * p
        if "layers" not in name:
            return u * np.linalg.norm(p) / np.linalg.norm(u)
        ratios = [np.linalg.norm(p[i]) / np.linalg.norm(u[i]) for i in range(2)]
        return u * np.reshape(ratios, (2, 1, 1))

    found = steps(tree(0), name="lamb", b1=B1, b2=B2, eps=EPS, weight_decay=0.3)
    same(found, by_hand(tree(0), direction))


def test_lamb_moves_what_is_zero():
    zero = jax.tree.map(np.zeros_like, tree(0))
    assert all(np.all(x != 0) for x in jax.tree.leaves(steps(zero, name="lamb")))


def test_three_steps_of_adagrad_divide_by_the_root_of_all_squares():
    def leaf(p, *grads):
        total = np.full_like(p, 0.7)
        for g in grads:
            total = total + g**2
            p = p - LR * g / np.sqrt(total)
        return p

    found = steps(tree(0), name="adagrad", initial_accumulator=0.7)
    same(found, jax.tree.map(leaf, tree(0), *GRADS))


RHO, L2, LIMIT, MOMENTUM = 0.9, 0.3, 2.0, 0.8


def test_three_steps_of_adadelta_are_zeiler_s():
    def leaf(path, p, *grads):
        squares = deltas = np.zeros_like(p)
        for g in grads:  # the penalty's gradient goes through the rule, and is clipped, too
            g = np.clip(g + (0 if "norm" in optimizer.path_name(path) else L2) * p, -LIMIT, LIMIT)
            squares = RHO * squares + (1 - RHO) * g**2
            step = np.sqrt((deltas + EPS) / (squares + EPS)) * g
            deltas = RHO * deltas + (1 - RHO) * step**2
            p = p - LR * step
        return p

    found = steps(tree(0), name="adadelta", rho=RHO, eps=EPS, l2=L2, clip_value=LIMIT)
    same(found, jax.tree_util.tree_map_with_path(leaf, tree(0), *GRADS))


@pytest.mark.parametrize("momentum", [0.0, MOMENTUM])
def test_three_steps_of_sgd_add_up_the_gradients_with_momentum(momentum):
    def leaf(p, *grads):
        velocity = np.zeros_like(p)
        for g in grads:
            velocity = momentum * velocity + g
            p = p - LR * velocity
        return p

    same(steps(tree(0), name="sgd", momentum=momentum), jax.tree.map(leaf, tree(0), *GRADS))


def test_columns_are_within_their_norm_after_every_step():
    limits = {"backbone/layers/w_DF": 0.5, "backbone/token_VD": 6.0}
    free, held = (steps(tree(0), name="sgd", max_norm=x)["backbone"] for x in (None, limits))
    length = lambda x: np.linalg.norm(x, axis=-2)  # noqa: E731
    assert length(free["layers"]["w_DF"]).max() > 0.5
    np.testing.assert_array_less(length(held["layers"]["w_DF"]), 0.5 + 1e-6)
    assert length(held["layers"]["w_DF"]).shape == (2, 4)  # of each layer of the stack
    np.testing.assert_array_less(length(held["token_VD"]), 6.0 + 1e-5)
    same(held["layers"]["norm"], free["layers"]["norm"])


def test_three_steps_of_sgd_are_the_awd_lstm_s():
    """Merity et al. 2017: SGD on the clipped gradient and L2, at a rate for 70 tokens."""
    section = dict(name="sgd", clip=2.0, l2=L2, decay_all=True, lr_tokens=70)
    norm = math.sqrt(sum((x**2).sum() for x in jax.tree.leaves(GRADS[0])))

    def leaf(p, *grads):
        for g in grads:
            p = p - LR * 35 / 70 * (g * 2.0 / norm + L2 * p)
        return p

    found = steps(tree(0), norm=norm, weight=35.0, **section)
    same(found, jax.tree.map(leaf, tree(0), *GRADS))


@pytest.mark.parametrize(("factor", "scale"), [(1e-3, 20.0), (1e3, 1.0)])
def test_clipping_limits_the_norm_of_the_whole_scaled_gradient(factor, scale):
    section = dict(name="adagrad", lr=1e8, steps=1, decay="constant", initial_accumulator=1e16)
    params, grads = tree(0), jax.tree.map(lambda x: jnp.float32(factor * x), GRADS[0])
    norm = math.sqrt(sum((x**2).sum() for x in jax.tree.leaves(grads)))
    assert (norm > 2) == (factor > 1)
    updates = []
    for clip in (0.0, 2.0):  # such Adagrad is plain descent: what comes out is what went in
        tx, _ = optimizer.make(**section, clip=clip, grad_scale=scale)
        updates.append(tx.update(grads, tx.init(params), params, norm=norm)[0])
    same(updates[0], jax.tree.map(lambda g: -scale * g, grads), rtol=1e-3)
    scaled = jax.tree.map(lambda u: u * min(1, 2 / (norm * scale)), updates[0])
    same(updates[1], scaled, rtol=1e-3)


# --- what decays, rests or learns slower -----------------------------------------------------


def update_of_ones(described, **section):
    """By name: updates of parameters 1 from gradients 1, with rate 1 and Adam's first step 1."""
    params, infos = described
    tx, _ = optimizer.make(lr=1, steps=1, decay="constant", eps=0.0, **section)
    tx = optimizer.with_infos(tx, infos)
    ones = jax.tree.map(lambda x: jnp.ones(x.shape), params)
    updates = quick_jit(lambda x: tx.update(x, tx.init(x), x, norm=1.0)[0])(ones)
    return {
        optimizer.path_name(path): -np.asarray(u)
        for path, u in jax.tree_util.tree_leaves_with_path(updates)
    }


class Classifier(nn.Module):
    """A backbone and a matrix above it."""

    backbone: nn.Module

    @nn.compact
    def __call__(self, tokens_BL):
        h_BLD = self.backbone(tokens_BL, mask=Mask(), train=False).h
        return h_BLD @ param(self, "w_DC", nn.initializers.ones, (4, 2), decay=True)


def describe(model, **kwargs):
    """The shapes of a model's parameters and their infos."""
    tokens_BL = jnp.zeros((1, 2), jnp.int32)
    with recording() as record:
        shapes = jax.eval_shape(lambda: model.init(jax.random.key(0), tokens_BL, **kwargs))
    return shapes["params"], record.infos(shapes["params"])


def xlnet(untied):
    model = modules.build("two_stream", V=7, D=4, H=2, K=2, N=3, F=6, untie_r=untied)
    return describe(Classifier(model))


@pytest.fixture(scope="module")
def untied():
    return xlnet(untied=True)


def test_all_but_norms_and_biases_decay_and_xlnet_s_query_biases_do(untied):
    updates = update_of_ones(untied, weight_decay=0.5)
    resting = {name.removeprefix("backbone/") for name, u in updates.items() if u.max() < 1.25}
    norms = {f"layers/{n}_norm/{x}_D" for n in ("attention", "ffn") for x in ("scale", "bias")}
    assert resting == norms | {"layers/ffn/bi_F", "layers/ffn/bo_D"}
    decayed = {
        name: u for name, u in updates.items() if name.removeprefix("backbone/") not in resting
    }
    assert all(np.allclose(u, 1.5) for u in decayed.values())
    for name in ("content", "position", "segment"):
        assert f"backbone/layers/attention/biases/{name}_HK" in decayed


def test_what_is_frozen_rests_even_from_decay(untied):
    updates = update_of_ones(untied, weight_decay=0.5, freeze="backbone")
    assert {name for name, u in updates.items() if u.any()} == {"w_DC"}


def test_the_longest_path_above_a_parameter_sets_its_rate(untied):
    attention = "backbone/layers/attention"
    rates = {f"{attention}/wq_DHK": 3.0, attention: 2.0, "w_DC": 10.0, "backbone/layers/ffn/": 5.0}
    for name, u in update_of_ones(untied, rates=rates).items():
        first = 3 if "wq_" in name else 2 if "attention/" in name else 10 if name == "w_DC" else 1
        np.testing.assert_allclose(u, 5 if "ffn/" in name else first, rtol=1e-4)


@pytest.mark.parametrize(
    ("section", "message"),
    [
        (dict(freeze="backbon"), "there is no parameter at 'backbon', but at backbone/"),
        (dict(max_norm={"w_DX": 3.0}), "there is no parameter at 'w_DX'"),
    ],
)
def test_a_rule_that_concerns_no_parameter_is_refused(untied, section, message):
    params, infos = untied
    flat = jax.tree.map(lambda info: ParamInfo(info.decay), infos)
    with pytest.raises(UserError, match=message):
        update_of_ones((params, flat), **section)


def test_rates_fall_from_layer_to_layer_and_the_embedding_lies_lowest(untied):
    updates = update_of_ones(untied, layer_lr_decay=0.5, weight_decay=0.0)
    for name, u in updates.items():
        if name.startswith("backbone/layers/"):
            expected = np.reshape([0.25, 0.5, 1.0], (3, *[1] * (u.ndim - 1)))
        else:
            expected = 0.125 if "token_VD" in name else 1.0
        np.testing.assert_allclose(u, np.broadcast_to(expected, u.shape), rtol=1e-4)


def test_biases_shared_by_all_layers_learn_at_one_rate():
    updates = update_of_ones(xlnet(untied=False), layer_lr_decay=0.5)
    shared = [u for name, u in updates.items() if name.startswith("backbone/biases/")]
    assert len(shared) == 3
    for u in shared:
        np.testing.assert_allclose(u, 1.0, rtol=1e-4)


def test_stages_and_periods_of_unfreezing_exclude_each_other():
    with pytest.raises(UserError, match="set unfreeze_every=0"):
        optimizer.make(lr=1, steps=4, stages=(1, 1), unfreeze_every=2)


SECTIONS = [
    *(dict(name=name) for name in sorted(optimizer.DIRECTIONS)),
    dict(name="sgd", momentum=0.9),
    dict(name="sgd", l2=0.1),
    dict(name="adagrad", weight_decay=0.1),
    dict(name="adagrad", max_norm={"backbone/token_VD": 0.01}),
    dict(name="adagrad", clip=1.0, grad_scale=3.0, clip_value=0.2, rates={"backbone": 0.5}),
]


@pytest.mark.parametrize("section", SECTIONS, ids=lambda x: "-".join([x["name"], *list(x)[1:]]))
def test_an_entrywise_optimizer_keeps_rows_without_gradient_and_takes_rows_alone(section):
    """Takes a step of all, then of two of five rows: of the whole, and of these rows alone."""
    tx, _ = optimizer.make(lr=LR, steps=3, decay="constant", **section)
    is_entrywise = isinstance(tx, EntrywiseTransformation)
    update = functools.partial(optimizer.with_infos(tx, INFOS).update, norm=2.0, weight=1.0)
    params, first, second = (jax.tree.map(np.float32, tree(seed)) for seed in (1, 2, 3))
    rows = np.array([3, 1])
    second["backbone"]["token_VD"][[0, 2, 4]] = 0
    _, opt = update(first, tx.init(params), params)
    updates, new = update(second, opt, params)

    def take(x):  # the one array with five rows, wherever it stands
        return x[rows] if getattr(x, "shape", ()) == (5, 3) else x

    few, few_new = update(*(jax.tree.map(take, x) for x in (second, opt, params)))
    pairs = jax.tree.leaves((few, few_new)), jax.tree.leaves(jax.tree.map(take, (updates, new)))
    is_same = all(np.allclose(a, b, rtol=1e-6) for a, b in zip(*pairs, strict=True))
    rest = np.array([0, 2, 4])
    kept, kept_new = (
        [x[rest] for x in jax.tree.leaves(state) if np.shape(x) == (5, 3)] for state in (opt, new)
    )
    stays = not updates["backbone"]["token_VD"][rest].any() and np.array_equal(kept, kept_new)
    assert (is_same and stays) == is_entrywise
