"""The maxima of plain convolutions, and gradients that keep none of their answers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from modules.kernels import char_max_pool as kernel
from modules.kernels.char_max_pool import char_max_pool
from tests.support import kernel_cases
from tests.support.char_windows import PAD, W, X, draw
from tests.support.kernel_cases import Case, assert_is_reference, every_form


def run_forms(table_CE, kernels, chars_BPW):
    """Returns the maxima and their places by every platform's form."""
    arrays = jax.tree.map(jnp.asarray, (table_CE, kernels, chars_BPW))
    return [jax.tree.map(np.asarray, forward(*arrays)) for forward, _ in kernel.FORMS.values()]


def test_of_equal_windows_the_first_is_the_place():
    table_CE, kernels, _, _ = draw()
    chars = np.array([[[97] * W, [97, 98] * 3 + [97], [PAD] * W, [97] * (W - 1) + [98]]])
    with jax.enable_x64(True):
        for _, places in run_forms(table_CE, kernels, chars):
            assert (places[0, [0, 2]] == 0).all()
            assert places[0, 1].max() <= 1
            assert set(np.unique(places[0, 3, :2])) <= {0, W - 1}


def test_what_is_kept_for_the_gradient_has_no_place_dimension():
    table_CE, kernels, _, _ = draw(np.float32)
    words, long = 10, 50
    chars = np.zeros((2, words // 2, long), np.int32)
    _, pull = jax.vjp(lambda t, k: char_max_pool(t, k, chars), table_CE, kernels)
    sizes = [x.size for x in jax.tree.leaves(pull) if x.shape != table_CE.shape]
    assert max(sizes) == words * long  # the characters themselves: answers would be X times more
    assert words * X in sizes  # the places of the maxima


def test_a_nan_is_not_hidden_by_the_maximum():
    table_CE, kernels, chars, _ = draw(np.float32)
    chars[0, 0, 3] = 100  # one word, one letter
    table_CE[100] = np.nan
    for top, _ in run_forms(table_CE, kernels, chars):
        assert np.isnan(top[0, 0]).all()
        assert np.isfinite(np.delete(top.reshape(-1, X), 0, axis=0)).all()


TABLE_CE, KERNELS, CHARS_BPW, _ = draw(shape=(kernel_cases.B, 2))
NAMED = {f"kernel{n}_EX": kernel for n, kernel in enumerate(KERNELS)}


def by_name(pool):
    """Returns a function of arrays by name."""
    return lambda a: pool(a["table_E"], [a[name] for name in NAMED], a["chars_BPW"])


CASE = Case(
    by_name(char_max_pool),
    by_name(kernel.reference),
    {"table_E": TABLE_CE, **NAMED, "chars_BPW": CHARS_BPW},
    (kernel,),
)


# In several chunks, the last filled up, and in one.
@pytest.mark.parametrize("words", [3, pytest.param(512, marks=pytest.mark.slow)])
@every_form(CASE)
def test_values_and_gradients_are_the_reference_s(form, devices, words, monkeypatch):
    monkeypatch.setattr(kernel, "WORDS_PER_CHUNK", dict.fromkeys(kernel.FORMS, words))
    assert_is_reference(CASE, form, devices, monkeypatch)


@pytest.mark.parametrize("form", kernel.FORMS)
def test_a_frequent_character_s_gradients_are_added_up_in_float32(form, monkeypatch):
    monkeypatch.setattr(kernel, "FORMS", {"default": kernel.FORMS[form]})
    chars_BPW = np.zeros((1, 4096, 2), np.uint16)
    weights = jnp.ones((3, 1), jnp.bfloat16), [jnp.ones((1, 1, 1), jnp.bfloat16)]
    loss = lambda weights: char_max_pool(*weights, chars_BPW).astype(jnp.float32).sum()  # noqa: E731
    # In bfloat16 a sum of ones would end at 256.
    table_CE, _ = jax.grad(loss)(weights)
    np.testing.assert_array_equal(table_CE[:, 0], [4096, 0, 0])
