"""The maxima of plain convolutions, and gradients that kept none of them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from modules.kernels import char_max_pool as kernel
from modules.kernels.char_max_pool import char_max_pool
from tests.support import kernel_cases
from tests.support.char_windows import PAD, W, X, draw, window_by_window
from tests.support.kernel_cases import Case, assert_is_reference, every_form


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
    monkeypatch.setattr(kernel, "WORDS_PER_CHUNK", request.param)


@pytest.mark.usefixtures("chunked")
@pytest.mark.parametrize("form", kernel.FORMS)
def test_maxima_places_and_gradients_are_those_found_window_by_window(form):
    table_CE, kernels, chars, dy = draw()
    forward, backward = kernel.FORMS[form]
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
        for forward, _ in kernel.FORMS.values():
            places = forward(*jax.tree.map(jnp.asarray, (table_CE, kernels, chars)))[1]
            assert (np.asarray(places)[0, [0, 2]] == 0).all()
            assert places[0, 1].max() <= 1
            assert set(np.unique(places[0, 3, :2])) <= {0, W - 1}


def test_maxima_and_gradients_are_torch_s():
    torch = pytest.importorskip("torch", reason="compares with torch, which is not installed")
    table_CE, kernels, chars, dy = draw()
    table = torch.tensor(table_CE, requires_grad=True)
    theirs = [torch.tensor(k, requires_grad=True) for k in kernels]
    x = table[torch.tensor(chars.reshape(-1, W))].transpose(1, 2)
    answers = [torch.nn.functional.conv1d(x, k.permute(2, 1, 0)).max(-1)[0] for k in theirs]
    torch.cat(answers, -1).backward(torch.tensor(dy.reshape(-1, X)))
    with jax.enable_x64(True):
        ours, pull = jax.vjp(lambda t, k: char_max_pool(t, k, chars), table_CE, kernels)
        dtable, dkernels = pull(dy)[0], pull(dy)[1]
    np.testing.assert_allclose(
        ours.reshape(-1, X), torch.cat(answers, -1).detach().numpy(), atol=1e-10
    )
    np.testing.assert_allclose(dtable, table.grad.numpy(), atol=1e-10)
    for a, b in zip(dkernels, theirs, strict=True):
        np.testing.assert_allclose(a, b.grad.numpy(), atol=1e-10)


def test_what_is_kept_for_the_gradient_has_no_place_dimension():
    long = 50
    table_CE, kernels, _, _ = draw(np.float32)
    chars = np.zeros((2, 5, long), np.int32)
    _, pull = jax.vjp(lambda t, k: char_max_pool(t, k, chars), table_CE, kernels)
    sizes = [x.size for x in jax.tree.leaves(pull) if x.shape != table_CE.shape]
    words = 2 * 5
    assert max(sizes) == words * long  # the characters themselves: answers would be X times more
    assert words * X in sizes  # the places of the maxima


def test_a_number_that_is_none_is_not_hidden_by_the_maximum():
    table_CE, kernels, chars, _ = draw(np.float32)
    chars[0, 0, 3] = 100  # one word, one letter
    table_CE[100] = np.nan
    for forward, _ in kernel.FORMS.values():
        top = np.asarray(forward(*jax.tree.map(jnp.asarray, (table_CE, kernels, chars)))[0])
        assert np.isnan(top[0, 0]).all()
        assert np.isfinite(np.delete(top.reshape(-1, X), 0, axis=0)).all()


TABLE_CE, KERNELS, CHARS_BPW, _ = draw(shape=(kernel_cases.B, 2))
NAMED = {f"kernel{n}_EX": kernel for n, kernel in enumerate(KERNELS)}


def pooled(pool):
    """(arrays by name) -> what this form makes of them."""
    return lambda a: pool(a["table_E"], [a[name] for name in NAMED], a["chars_BPW"])


CASE = Case(
    pooled(char_max_pool),
    pooled(kernel.reference),
    {"table_E": TABLE_CE, **NAMED, "chars_BPW": CHARS_BPW},
    (kernel,),
)


@every_form(CASE)
def test_values_and_gradients_are_the_reference_s(form, devices, monkeypatch):
    assert_is_reference(CASE, form, devices, monkeypatch)
