"""Layers are chosen, summed up and mixed."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pretrain.inference.layer_selection import parse_layers, parse_pool
from pretrain.runtime.errors import UserError


def test_layers_are_chosen_and_mixed():
    h_NBLD = np.random.default_rng(0).normal(0, 1, (3, 2, 5, 4)).astype(np.float32)
    found = {layers: parse_layers(layers, count=3)(h_NBLD) for layers in ("all", "top", "1", "2,0")}
    expected = {"all": h_NBLD, "top": h_NBLD[2], "1": h_NBLD[1], "2,0": h_NBLD[[2, 0]]}
    jax.tree.map(np.testing.assert_array_equal, found, expected)
    np.testing.assert_allclose(parse_layers("mean", count=3)(h_NBLD), h_NBLD.mean(0), atol=1e-6)
    mixed = 0.5 * h_NBLD[0] - 2 * h_NBLD[2]
    np.testing.assert_allclose(parse_layers("0,2", "0.5,-2", count=3)(h_NBLD), mixed, atol=1e-6)


def test_a_sum_of_layers_is_added_up_in_float32():
    h_NBLD = jnp.full((2, 1, 1, 1), 1 / 3, jnp.bfloat16)
    summed = parse_layers("all", "0.1,0.001", count=2)(h_NBLD)
    np.testing.assert_allclose(summed, 0.101 * float(h_NBLD[0, 0, 0, 0]), rtol=1e-6)


WRONG_LAYERS = {
    ("3", ""): "layers 0 to 2",
    ("-1", ""): "layers 0 to 2",
    ("first", ""): "all, top, mean or numbers",
    ("all", "1,0"): "2 weights for 3 layers",
    ("0,1", "1,x"): "as weights numbers",
    ("mean", "1,0,0"): "leave out --mix",
}


@pytest.mark.parametrize(("layers", "mix"), WRONG_LAYERS)
def test_layers_that_are_not_there_and_weights_for_others_are_refused(layers, mix):
    with pytest.raises(UserError, match=WRONG_LAYERS[layers, mix]):
        parse_layers(layers, mix, count=3)


def test_poolings_of_sentences_have_their_layers():
    for layers, expected in (("", [2]), ("all", [0, 1, 2]), ("1", [1])):
        assert [*parse_pool("mean", layers, count=3)[0].layers] == expected
    assert parse_pool("", count=3, default="all")[0].layers == (0, 1, 2)
    assert not parse_pool("mean", "all", count=3)[0].is_one
    assert parse_pool("mean", "all", "1,0,0", count=3)[0].is_one
    with pytest.raises(UserError, match="--pool=last_two has layers of its own"):
        parse_pool("last_two", "all", count=3)
    with pytest.raises(UserError, match="two layers or more: this has 1"):
        parse_pool("first_last", count=2)
