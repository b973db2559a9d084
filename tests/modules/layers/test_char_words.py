"""Words from their own characters, as the formulas have them, whatever they are filled up with."""

import jax
import numpy as np
import pytest

from modules.layers.char_words import CharWords
from pretrain.data.tokenizers.character_ids import spell_words
from tests.support.arrays import draw_variables
from tests.support.compiler import quick_jit

WORDS = ["a", "EU", "kitchens", "fine"]
FORMS = {"rnn": dict(E=3, cell="gru", U=4), "filters": dict(E=3, filters=((3, 4), (4, 2)))}


def spell(W):
    """[2, 3, W]: WORDS, and two positions without one."""
    return np.concatenate([spell_words(WORDS, W), np.full((2, W), 260)]).reshape(2, 3, W)


@pytest.fixture(scope="module", params=FORMS)
def case(request):
    """A module, parameters of which none is 0, and characters -> words."""
    model = CharWords(**FORMS[request.param])
    given = (model.init, jax.random.key(0), spell(10))
    params = draw_variables(*given, train=False, scale=0.5)["params"]
    return params, quick_jit(lambda p, chars: model.apply({"params": p}, chars, train=False))


def test_padding_has_no_influence_and_no_word_has_zeros(case):
    params, apply = case
    found = apply(params, spell(10))
    np.testing.assert_allclose(found, apply(params, spell(16)), atol=1e-6)
    assert not found[1, 1:].any()
    other = jax.tree.map(np.copy, params)
    other["character_E"][260] += 5
    np.testing.assert_array_equal(found, apply(other, spell(10)))


def test_a_word_depends_on_its_own_letters_alone(case):
    params, apply = case
    found = np.array(apply(params, spell(10)))  # copied: the next call may reuse its memory
    other = jax.tree.map(np.copy, params)
    other["character_E"][ord("U")] += 1
    changed = (found != apply(other, spell(10))).any(-1)
    np.testing.assert_array_equal(changed, [[False, True, False], [False, False, False]])


def test_filters_are_maxima_over_windows_around_each_character():
    model = CharWords(**FORMS["filters"])
    params = draw_variables(model.init, jax.random.key(0), spell(10), train=False)["params"]
    apply = quick_jit(lambda p: model.apply({"params": p}, spell(10), train=False))
    found = apply(params)
    for word, vector_X in zip(WORDS, found.reshape(6, -1), strict=False):
        x_WE = params["character_E"][[258, *word.encode(), 259]]
        expected = []
        for w, many in FORMS["filters"]["filters"]:
            padded = np.concatenate([np.zeros(((w - 1) // 2, 3)), x_WE, np.zeros((w // 2, 3))])
            windows = np.stack([padded[i : i + w] for i in range(len(x_WE))])
            y_WX = np.einsum("iwE,wEX->iX", windows, params[f"kernel{w}_EX"])
            assert y_WX.shape[1] == many
            expected.append(np.tanh(y_WX.max(0) + params[f"bias{w}_X"]))
        np.testing.assert_allclose(vector_X, np.concatenate(expected), atol=1e-5)


@pytest.mark.parametrize("fields", [{}, dict(cell="gru"), dict(U=3), dict(U=3, filters=((3, 4),))])
def test_characters_are_read_by_a_cell_or_by_filters(fields):
    with pytest.raises(ValueError, match="either by a cell of U units or by filters"):
        CharWords(**fields)
