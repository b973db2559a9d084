"""Windows over one long row of words are those over rows with their padding."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from modules.kernels import word_windows
from tests.support.kernel_cases import Case, assert_is_reference, every_form

B, L, D = 8, 9, 3
RNG = np.random.default_rng(0)
NAMED = {f"kernel{w}_DX": RNG.normal(size=(w, D, X)) for w, X in ((2, 4), (5, 2), (1, 2))}
FEW_BL = np.arange(L) < RNG.integers(0, 6, (B, 1))
FEW_BL[0] = np.arange(L) >= 6  # padded in front
FEW_BL[1] = np.arange(L) % 3 == 1  # and between words
FEW_BL[2] = False


def by_name(multiply, valid_BL, names=tuple(NAMED)):
    """Returns a function of arrays by name."""

    def f(a):
        x_BLD = jnp.where(valid_BL[..., None], a["x_BLD"], 0)
        return multiply(x_BLD, [a[name] for name in names], jnp.asarray(valid_BL))

    return f


def case(valid_BL, names=tuple(NAMED)):
    return Case(
        by_name(word_windows.multiply_windows, valid_BL, names),
        by_name(word_windows.reference, valid_BL, names),
        {"x_BLD": RNG.normal(size=(B, L, D))} | {name: NAMED[name] for name in names},
        (word_windows,),
    )


HALF_BL = np.arange(L) < np.full((B, 1), 5)  # too many for the shorter of the long rows
MANY_BL = np.arange(L) < np.full((B, 1), L - 1)
CASES = {
    "few": case(FEW_BL),
    "half": case(HALF_BL),
    "many": case(MANY_BL),
    "single": case(FEW_BL, ("kernel1_DX",)),
}


@every_form(CASES["few"])
@pytest.mark.parametrize("words", CASES)
def test_values_and_gradients_are_the_reference_s(words, form, devices, monkeypatch):
    assert_is_reference(CASES[words], form, devices, monkeypatch)


def test_products_are_of_words_and_the_room_between_them():
    args = np.zeros((50, 44, 100)), [np.zeros((5, 100, 300))], np.ones((50, 44), bool)
    text = str(jax.make_jaxpr(word_windows.multiply_windows)(*args))
    for share in word_windows.SHARES:
        rows = int(share * 50 * 44) + 51 * 4
        assert f"f32[{rows},1500]" in text
