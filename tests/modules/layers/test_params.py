"""How weights begin, and what a parameter is to an optimizer."""

import json
import math
import pathlib

import jax
import jax.numpy as jnp
import numpy as np

from modules.layers import layer_stack
from modules.layers.params import ACTIVATIONS as OURS
from modules.layers.params import ParamInfo, initializer, nn, param, recording, set_depths, zeros
from tests.support.xlnet_reference import gelu

GOLDEN = json.loads((pathlib.Path(__file__).parents[2] / "fixtures" / "golden.json").read_text())


def test_the_two_gelus_differ_by_what_they_are_known_to():
    x = np.linspace(-6, 6, 20001)
    tanh, erf = (np.asarray(OURS[name](x)) for name in ("gelu", "gelu_erf"))
    np.testing.assert_allclose(tanh, gelu(x), atol=1e-6)
    assert abs(np.abs(tanh - erf).max() - GOLDEN["gelu_tanh_vs_erf_max_abs"]) < 1e-6


# --- how weights begin -----------------------------------------------------------------------


def test_initialisers_are_normal_truncated_or_not_or_uniform():
    key, shape = jax.random.key(0), (300, 300)
    x = np.asarray(initializer("normal", 0.02)(key, shape, jnp.float32))
    assert abs(x.std() / 0.02 - 1) < 0.01
    assert np.abs(x).max() > 3.5 * 0.02
    x = np.asarray(initializer("truncated", 0.02)(key, shape, jnp.float32))
    assert 1.99 * 0.02 < np.abs(x).max() <= 2 * 0.02 + 1e-7
    assert abs(x.std() / (0.87963 * 0.02) - 1) < 0.01  # as TensorFlow: 0.02 is before the cut
    x = np.asarray(initializer("uniform", 0.1)(key, shape, jnp.float32))
    assert 0.0999 < np.abs(x).max() <= 0.1
    assert abs(x.std() / (0.1 / math.sqrt(3)) - 1) < 0.01


# --- what a parameter is to an optimizer -----------------------------------------------------


class Plain(nn.Module):
    """Linen's own way to make parameters."""

    @nn.compact
    def __call__(self, x_BD):
        w_DD = self.param("w_DD", nn.initializers.ones, (3, 3))
        return x_BD @ w_DD + self.param("b_D", zeros, (3,))


class Deep(nn.Module):
    """An embedding; two layers of their own, in two ways; a stack of equal layers; and a head."""

    def setup(self):
        self.token_VD = param(self, "token_VD", zeros, (5, 3), decay=True, is_table=True, depth=0)
        self.first, self.second, self.head = Plain(), Plain(), Plain()
        set_depths(self, first=1, second=2)
        self.bias_D = param(self, "bias_D", zeros, (3,), decay=False)

    def __call__(self, tokens_B):
        x_BD = self.token_VD[tokens_B]
        return self.head(self.second(self.first(x_BD))) + self.bias_D


class Stacked(nn.Module):
    """Equal layers over an embedding, some of which Linen's scan stacks; it counts for itself."""

    below: nn.Module

    @nn.compact
    def __call__(self, tokens_B):
        x_BD = self.below(tokens_B)
        stack = layer_stack.init_layer_stack(self, "layers", Plain(parent=None), 2, x_BD)
        set_depths(self, scanned=range(1, 3))
        scan = nn.scan(
            lambda layer, x_BD, _: (layer(x_BD), None),
            variable_axes={"params": 0},
            split_rngs={"params": True},
            length=2,
        )
        return scan(Plain(name="scanned"), x_BD, None)[0] + stack["b_D"][0]


def build_infos(model):
    with recording() as record:
        shapes = jax.eval_shape(model.init, jax.random.key(0), jnp.zeros(2, jnp.int32))["params"]
    return record.infos(shapes)


def test_parameters_are_as_deep_as_their_module_is_said_to_be():
    one = lambda above: {"w_DD": ParamInfo(True, above), "b_D": ParamInfo(False, above)}  # noqa: E731
    deep = dict(first=one(1), second=one(0), head=one(-1))
    deep |= dict(token_VD=ParamInfo(True, 2, is_table=True), bias_D=ParamInfo(False))
    assert build_infos(Deep()) == deep
    stacks = dict.fromkeys(("layers", "scanned"), one((1, 0)))
    assert build_infos(Stacked(Deep())) == {"below": deep, **stacks}
