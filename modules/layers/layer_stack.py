"""Stacks of equal layers, whose parameters have a leading dimension."""

import functools
from collections.abc import Callable, Iterable
from typing import Any

import jax
from flax import linen as nn

from modules.kernels import attention
from modules.layers.params import (
    ACTIVATIONS,
    DTYPES,
    INITIALIZERS,
    recording_within,
    set_depths,
)


def init_layer_stack(
    module: nn.Module, name: str, block: nn.Module, N: int, *example: Any, **kwargs: Any
):
    """Initialises N layers of `block`, whose leaves have a leading layer dimension.

    Args:
        module: which has the layers, under `name`.
        block: the layer, without a parent.
        example, kwargs: the smallest arguments of a layer, to make its parameters with.
    """

    def init(rng):
        def init_layer(key):
            return block.init(key, *example, **kwargs)["params"]  # type: ignore[call-arg]

        # A key for each layer: under `vmap` all would otherwise begin with the same weights.
        return jax.vmap(init_layer)(jax.random.split(rng, N))

    set_depths(module, **{name: range(1, N + 1)})
    # A block without a parent does not know where it stands; the record says it stands here.
    with recording_within(module, name):
        return module.param(name, init)


def split_layers(tree, sizes: tuple[int, ...]) -> list:
    """Splits every leaf along its first dimension into these sizes: a list of trees."""
    # The gradient of `lax.split` joins the pieces' gradients; slices would add up padded ones.
    leaves, structure = jax.tree.flatten(tree)
    pieces = zip(*(jax.lax.split(x, sizes) for x in leaves), strict=True)
    return [jax.tree.unflatten(structure, piece) for piece in pieces]


# By name, what the backward pass of a layer computes again in place of keeping it.
REMAT: dict[str, Callable[[Callable], Callable]] = {
    "none": lambda f: f,
    "dots": functools.partial(
        jax.checkpoint, policy=jax.checkpoint_policies.dots_with_no_batch_dims_saveable
    ),
    "full": jax.checkpoint,
}

# The values that fields of a Transformer's layers may have.
CHOICES: dict[str, Iterable[str]] = dict(
    activation=ACTIVATIONS,
    remat=REMAT,
    dtype=DTYPES,
    initializer=INITIALIZERS,
    attention_form=attention.CHOICES,
)
# Those that fine-tuning may change, see `modules.backbones.Backbone`.
FREE_FIELDS = frozenset(
    {"attention", "dropout", "attention_dropout", "initializer", "init_scale", "dtype"}
)
