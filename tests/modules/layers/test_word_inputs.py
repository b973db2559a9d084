"""Words have vectors of their characters, or of a table."""

import jax
import numpy as np
import pytest

from modules.layers.word_inputs import KINDS, WordInputs

SIZES = dict(
    V=7, D=6, E=3, filters=((1, 4), (2, 4)), highways=1, activation="relu", W=5, dtype="float32"
)


@pytest.mark.parametrize("inputs", KINDS)
def test_a_word_has_one_vector_wherever_it_stands(inputs):
    words = WordInputs(inputs=inputs, **SIZES)
    shape = (7, 5) if inputs == "characters" else (7,)
    tokens = np.random.default_rng(0).permutation(7 * 5 if inputs == "characters" else 7)
    tokens_L = tokens.reshape(shape)
    params = words.init(jax.random.key(0), words.example())
    x_BLD = words.apply(params, tokens_L[None])
    assert x_BLD.shape == (1, 7, 6)
    np.testing.assert_allclose(words.apply(params, tokens_L[None, ::-1]), x_BLD[:, ::-1], atol=1e-6)
    assert (words.apply(params, method="table") is None) == (inputs == "characters")
    assert (words.flops() > 0) == (inputs == "characters")
