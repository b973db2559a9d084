"""The maxima of plain convolutions, and gradients that kept none of them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from modules.activation_sharding import sharding_context
from modules.layers import char_cnn
from pretrain.distributed.sharding import Layout, make_mesh
from tests.support.xlnet_inputs import quick_jit

E, W, PAD = 3, 7, 260
FILTERS = ((1, 2), (2, 3), (4, 5))
X = 10
FORMS = {  # what a CPU does, and what everything else does
    "rows": (char_cnn._by_rows, char_cnn._by_rows_backward),
    "convolution": (char_cnn._by_convolution, char_cnn._by_convolution_backward),
}


def draw(dtype=np.float64, shape=(2, 5)):
    """A table, kernels, words of few different letters filled up with PAD, slopes."""
    rng = np.random.default_rng(0)
    table_CE = rng.uniform(-1, 1, (char_cnn.C, E)).astype(dtype)
    kernels = [rng.normal(0, 1, (w, E, many)).astype(dtype) for w, many in FILTERS]
    chars = rng.integers(97, 100, (*shape, W))
    chars = np.where(np.arange(W) < rng.integers(0, W + 1, (*shape, 1)), chars, PAD)
    return table_CE, kernels, chars, rng.normal(0, 1, (*shape, X)).astype(dtype)


def window_by_window(table_CE, kernels, chars_BPW):
    """Every answer of every filter: a list of [B, P, places, X]."""
    x = np.asarray(table_CE, np.float64)[chars_BPW]
    return [
        np.stack(
            [np.einsum("BPwE,wEX->BPX", x[:, :, j : j + len(k)], k) for j in range(W - len(k) + 1)],
            2,
        )
        for k in kernels
    ]


def slopes_window_by_window(table_CE, kernels, chars_BPW, dy_BPX):
    """Each slope goes to the window of its maximum, the first of equal ones."""
    dtable, dkernels = np.zeros_like(table_CE), [np.zeros_like(k) for k in kernels]
    columns = iter(np.moveaxis(dy_BPX, -1, 0))
    for n, answers in enumerate(window_by_window(table_CE, kernels, chars_BPW)):
        for m in range(answers.shape[-1]):
            dy_BP = next(columns)
            for b, p in np.ndindex(*dy_BP.shape):
                each = answers[b, p, :, m]
                j = np.flatnonzero(each >= each.max() - 1e-12)[0]
                for i, char in enumerate(chars_BPW[b, p, j : j + len(kernels[n])]):
                    dtable[char] += dy_BP[b, p] * kernels[n][i, :, m]
                    dkernels[n][i, :, m] += dy_BP[b, p] * table_CE[char]
    return dtable, dkernels


@pytest.fixture(params=[1, 3, 512])
def chunked(request, monkeypatch):
    monkeypatch.setattr(char_cnn, "WORDS", request.param)


@pytest.mark.usefixtures("chunked")
@pytest.mark.parametrize("form", FORMS)
def test_maxima_places_and_gradients_are_those_found_window_by_window(form):
    table_CE, kernels, chars, dy = draw()
    forward, backward = FORMS[form]
    answers = window_by_window(table_CE, kernels, chars)
    with jax.enable_x64(True):
        given = jax.tree.map(jnp.asarray, (table_CE, kernels, chars))
        top, at = forward(*given)
        found = backward(*given, at, jnp.asarray(dy))
    np.testing.assert_allclose(top, np.concatenate([x.max(2) for x in answers], -1), atol=1e-10)
    expected = slopes_window_by_window(table_CE, kernels, chars, dy)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-10), found, expected)


def test_of_equal_windows_the_first_is_the_place():
    table_CE, kernels, _, _ = draw()
    chars = np.array([[[97] * W, [97, 98] * 3 + [97], [PAD] * W, [97] * (W - 1) + [98]]])
    with jax.enable_x64(True):
        for forward, _ in FORMS.values():
            places = forward(*jax.tree.map(jnp.asarray, (table_CE, kernels, chars)))[1]
            assert (np.asarray(places)[0, [0, 2]] == 0).all()
            assert places[0, 1].max() <= 1
            assert set(np.unique(places[0, 3, :2])) <= {0, W - 1}


def test_the_gradient_is_autodiff_s_of_the_plain_formula():
    table_CE, kernels, _, dy = draw()
    chars = np.random.default_rng(1).permuted(np.tile(np.arange(W), (2, 5, 1)), axis=-1)

    def plain(table_CE, kernels):  # no two windows equal: JAX would share the gradient among them
        x = table_CE[chars]
        windows = [
            jnp.stack([x[:, :, j : j + len(k)] for j in range(W - len(k) + 1)], 2) for k in kernels
        ]
        pairs = zip(windows, kernels, strict=True)
        return jnp.concatenate([jnp.einsum("BPJwE,wEX->BPJX", *p).max(2) for p in pairs], -1)

    with jax.enable_x64(True):
        found, expected = (
            quick_jit(jax.value_and_grad(lambda a, f=f: (dy * f(*a)).sum()))((table_CE, kernels))
            for f in (lambda t, k: char_cnn.pooled(t, k, chars), plain)
        )
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-10), found, expected)


def test_maxima_and_gradients_are_torch_s():
    torch = pytest.importorskip("torch", reason="compares with torch, which is not installed")
    table_CE, kernels, chars, dy = draw()
    table = torch.tensor(table_CE, requires_grad=True)
    theirs = [torch.tensor(k, requires_grad=True) for k in kernels]
    x = table[torch.tensor(chars.reshape(-1, W))].transpose(1, 2)
    answers = [torch.nn.functional.conv1d(x, k.permute(2, 1, 0)).max(-1)[0] for k in theirs]
    torch.cat(answers, -1).backward(torch.tensor(dy.reshape(-1, X)))
    with jax.enable_x64(True):
        ours, pull = jax.vjp(lambda t, k: char_cnn.pooled(t, k, chars), table_CE, kernels)
        dtable, dkernels = pull(dy)[0], pull(dy)[1]
    np.testing.assert_allclose(
        ours.reshape(-1, X), torch.cat(answers, -1).detach().numpy(), atol=1e-10
    )
    np.testing.assert_allclose(dtable, table.grad.numpy(), atol=1e-10)
    for a, b in zip(dkernels, theirs, strict=True):
        np.testing.assert_allclose(a, b.grad.numpy(), atol=1e-10)


def module(**fields):
    return char_cnn.CharCNN(**({"D": 4, "E": E, "filters": FILTERS} | fields))


def begin(model, chars):
    return quick_jit(model.init)(jax.random.key(0), chars)


def by_hand(params, chars_W, activation):
    """The whole of it in float64."""
    p = {name: np.asarray(x, np.float64) for name, x in params.items()}
    kernels = [p[f"kernel{w}_EX"] for w, _ in FILTERS]
    answers = window_by_window(p["character_E"], kernels, chars_W[None])
    x = np.concatenate([a.max(2)[0] for a in answers], -1)
    x = activation(x + np.concatenate([p[f"bias{w}_X"] for w, _ in FILTERS]))
    for n in range(2):
        gate = 1 / (1 + np.exp(-(x @ p["carry_XX"][n] + p["carry_X"][n])))
        new = np.maximum(x @ p["transform_XX"][n] + p["transform_X"][n], 0)
        x = gate * new + (1 - gate) * x
    return x @ p["projection_XD"] + p["projection_D"] if "projection_XD" in p else x


@pytest.mark.parametrize("D", [4, X])
@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_words_are_the_formula_s_and_are_projected_only_where_the_widths_differ(activation, D):
    chars = draw()[2]
    model = module(activation=activation, D=D)
    params = begin(model, chars)["params"]
    params = jax.tree.map(  # so that no bias is 0
        lambda x: x + 0.3 * jax.random.normal(jax.random.key(1), x.shape), params
    )
    with jax.default_matmul_precision("highest"):
        found = quick_jit(model.apply)({"params": params}, chars)
    assert ("projection_XD" in params) == (D != X)
    form = {"relu": lambda x: np.maximum(x, 0), "tanh": np.tanh}[activation]
    np.testing.assert_allclose(found[1], by_hand(params, chars[1], form), atol=1e-5)


@pytest.mark.parametrize("leading", [(), (3,), (2, 1, 3)])
def test_a_word_is_the_same_wherever_it_stands(leading):
    chars = draw(shape=leading)[2]
    model = module()
    params = begin(model, chars)
    apply = quick_jit(model.apply)
    found = apply(params, chars)
    assert found.shape == (*leading, 4)
    alone = [apply(params, word) for word in chars.reshape(-1, W)]
    np.testing.assert_allclose(found.reshape(-1, 4), alone, atol=1e-6)


def test_states_and_gradients_are_the_same_on_a_mesh():
    chars = draw(shape=(8, 3))[2]
    model = module(D=4)
    params = begin(model, chars)

    def run(params, chars):
        return (model.apply(params, chars) ** 2).sum()

    expected = quick_jit(jax.value_and_grad(run))(params, chars)
    layout = Layout(make_mesh(data=2, fsdp=2, tensor=2))
    split = jax.tree.map(jax.device_put, params, layout.of(params))
    rows = jax.device_put(chars, layout.of({"chars_BPW": chars})["chars_BPW"])
    assert rows.addressable_shards[0].data.shape[0] == 2
    with sharding_context(layout):
        found = quick_jit(jax.value_and_grad(run))(split, rows)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), found, expected)


def test_what_is_kept_for_the_gradient_has_no_place_dimension():
    long = 50
    table_CE, kernels, _, _ = draw(np.float32)
    chars = np.zeros((2, 5, long), np.int32)
    _, pull = jax.vjp(lambda t, k: char_cnn.pooled(t, k, chars), table_CE, kernels)
    sizes = [x.size for x in jax.tree.leaves(pull) if x.shape != table_CE.shape]
    words = 2 * 5
    assert max(sizes) == words * long  # the characters themselves: answers would be X times more
    assert words * X in sizes  # the places of the maxima


def test_half_precision_weights_give_half_precision_states_near_the_whole_ones():
    chars = draw()[2]
    params = begin(module(), chars)

    def run(dtype):
        return quick_jit(module(dtype=dtype).apply)(params, chars)

    half, whole = run("bfloat16"), run("float32")
    assert half.dtype == jnp.bfloat16
    assert np.linalg.norm(half.astype(np.float32) - whole) < 0.02 * np.linalg.norm(whole)


def test_a_number_that_is_none_is_not_hidden_by_the_maximum():
    table_CE, kernels, chars, _ = draw(np.float32)
    chars[0, 0, 3] = 100  # one word, one letter
    table_CE[100] = np.nan
    for forward, _ in FORMS.values():
        top = np.asarray(forward(*jax.tree.map(jnp.asarray, (table_CE, kernels, chars)))[0])
        assert np.isnan(top[0, 0]).all()
        assert np.isfinite(np.delete(top.reshape(-1, X), 0, axis=0)).all()


def test_parameters_are_as_many_and_as_large_as_elmo_s():
    model = char_cnn.CharCNN(D=512)
    shapes = jax.eval_shape(model.init, jax.random.key(0), jnp.zeros((1, 50), jnp.int32))["params"]
    X = 2048
    convolved = sum(w * 16 * many + many for w, many in char_cnn.ELMO)
    expected = 261 * 16 + convolved + 2 * 2 * (X * X + X) + X * 512 + 512
    assert sum(x.size for x in jax.tree.leaves(shapes)) == expected


@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_parameters_begin_as_the_original_s(activation):
    model = char_cnn.CharCNN(D=50, filters=((2, 300), (3, 100)), activation=activation)
    p = begin(model, np.zeros((1, W), int))["params"]
    deviation = {"relu": 0.05 / 3**0.5, "tanh": 1 / (2 * 16) ** 0.5}[activation]
    np.testing.assert_allclose(p["kernel2_EX"].std(), deviation, rtol=0.05)
    assert (np.abs(p["kernel2_EX"]).max() <= 0.05) == (activation == "relu")
    np.testing.assert_allclose(p["character_E"].std(), 1 / 3**0.5, rtol=0.05)
    assert np.abs(p["character_E"]).max() <= 1
    for name in ("carry_XX", "transform_XX", "projection_XD"):
        np.testing.assert_allclose(p[name].std(), 1 / 400**0.5, rtol=0.05)
    assert (p["carry_X"] == -2).all()
    zeros = ("bias2_X", "transform_X", "projection_D")
    assert not any(p[name].any() for name in zeros)


def test_flops_are_two_for_each_weight_at_each_place_it_is_used():
    model = module()
    convolved = sum(2 * w * E * many * (W - w + 1) for w, many in FILTERS)
    assert model.flops(W) == convolved + 2 * 2 * (2 * X * X) + 2 * X * 4
    assert module(D=X, highways=0).flops(W) == convolved


def test_a_word_shorter_than_a_filter_is_refused():
    with pytest.raises(ValueError, match=r"filters=.*4 wide.*W=3"):
        module().init(jax.random.key(0), np.zeros((1, 3), int))


def test_an_unknown_activation_is_refused():
    with pytest.raises(ValueError, match="activation='gelu'"):
        module(activation="gelu").init(jax.random.key(0), np.zeros((1, W), int))
