"""Stacks of equal layers, whose parameters have a leading dimension."""

import functools
from collections.abc import Callable, Iterable
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

from modules.kernels import attention
from modules.layers.params import (
    ACTIVATIONS,
    DTYPES,
    INITIALIZERS,
    recording,
    recording_within,
    set_depths,
    shard_param,
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


def cast_layers(layers, block: nn.Module, *example: Any, **kwargs: Any):
    """Casts what the layers compute in a narrower dtype: a tree like theirs; None: it is as stored.

    Cast in a loop over the layers, each layer's would be saved for the backward pass, and read
    from there; from before the loop it is read where it is.

    Args:
        block, example, kwargs: as `init_layer_stack`.
    """
    with recording() as record:
        jax.eval_shape(lambda: block.init(jax.random.key(0), *example, **kwargs))

    def cast(path, w):
        dtype = record.dtypes.get(tuple(key.key for key in path), "float32")
        narrow = shard_param(path[-1].key, jax.lax.stop_gradient(w)).astype(dtype)
        return None if dtype == "float32" else narrow

    return jax.tree_util.tree_map_with_path(cast, layers)


def use_casts(weights, casts):
    """Returns a layer's weights, those that are cast in their place: the gradient is the former's.

    Args:
        casts: of `cast_layers`, a layer's part; None: nothing is cast.
    """
    if casts is None:
        return weights

    def use(path, w, narrow):
        return w if narrow is None else _take_cast(path[-1].key, w, narrow)

    return jax.tree_util.tree_map_with_path(use, weights, casts)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _take_cast(name: str, w, narrow):
    return narrow


def _take_cast_backward(name: str, _, grad):
    # As that of a cast: in float32 before the devices add up, and each keeps its shard.
    return shard_param(name, grad.astype(jnp.float32)), None


_take_cast.defvjp(lambda _, w, narrow: (narrow, None), _take_cast_backward)


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
FREE_FIELDS = frozenset({"dropout", "attention_dropout", "initializer", "init_scale", "dtype"})
