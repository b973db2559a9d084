"""AR and TAR are the paper's means of squares, over the positions that count."""

import itertools

import jax.numpy as jnp
import numpy as np
import pytest

from modules.losses.activation_regularization import penalize_change, penalize_size

WEIGHTS_BL = np.array([[1, 1, 1, 0, 0], [0, 1, 0.5, 1, 1]], np.float32)


def test_sizes_and_changes_are_averaged_over_what_counts():
    h_BLD = np.random.default_rng(0).normal(size=(2, 5, 3)).astype(np.float32)
    sizes, changes = [], []
    for h_LD, weights_L in zip(h_BLD, WEIGHTS_BL, strict=True):
        sizes += [(w, (h_D**2).mean()) for h_D, w in zip(h_LD, weights_L, strict=True)]
        pairs = itertools.pairwise(zip(h_LD, weights_L, strict=True))
        changes += [(min(v, w), ((b - a) ** 2).mean()) for (a, v), (b, w) in pairs]
    given = (sizes, penalize_size, 2.0), (changes, penalize_change, 3.0)
    for expected, penalize, weight in given:
        found = penalize(h_BLD, WEIGHTS_BL, weight)
        mean = sum(w * x for w, x in expected) / sum(w for w, _ in expected)
        assert found.total / found.weight == pytest.approx(weight * mean, rel=1e-5)
        assert found.train


def test_squares_of_half_precision_are_those_of_float32():
    h_BLD = jnp.full((1, 4, 2), 1 + 1 / 128, jnp.bfloat16)
    found = penalize_size(h_BLD, jnp.ones((1, 4)), 1.0)
    assert found.total / found.weight == (1 + 1 / 128) ** 2  # which bfloat16 would round
