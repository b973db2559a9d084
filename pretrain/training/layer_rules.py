"""Rules of an optimiser that treat layers by their depth: slower rates below, unfreezing.

Howard & Ruder 2018 (arXiv 1801.06146), sections 3.2 and 3.3.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from modules.layers.params import ParamInfo
from pretrain.runtime.errors import UserError


def broadcast_layers_above(info: ParamInfo, u: jax.Array) -> jax.Array:
    above = jnp.asarray(info.layers_above)
    return above.reshape(-1, *[1] * (u.ndim - 1)) if above.ndim else above


def check_depths(infos) -> None:
    """Raises a UserError unless some parameter says how deep it lies."""
    if all(info.layers_above == -1 for info in jax.tree.leaves(infos)):
        raise UserError(
            "optim.layer_lr_decay, optim.unfreeze_every and optim.stages need a model whose "
            "parameters say how deep they lie; see modules.layers.params.set_depths"
        )


def layer_decay(factor: float) -> optax.GradientTransformationExtraArgs:
    """Lets learning rates fall by `factor` from each layer to the one beneath it."""

    # Applied to the update, where it counts: scaling gradients leaves Adam's steps as they were.
    # The top layer and what lies above it (-1) keep the rate; embeddings lie beneath layer 0.
    def scale(u, info: ParamInfo):
        return u * (factor ** jnp.maximum(broadcast_layers_above(info, u), 0).astype(u.dtype))

    def update(updates, state, params=None, *, infos, **_):
        check_depths(infos)
        return jax.tree.map(scale, updates, infos), state

    return optax.GradientTransformationExtraArgs(optax.init_empty_state, update)


class Steps(NamedTuple):
    """State of `unfreezing`."""

    updates: jax.Array


# Whether parameters learn, from (updates so far, layers above them, layers above the lowest).
Gate = Callable[[jax.Array, jax.Array, int], jax.Array]


def unfreezing(is_learning: Gate) -> optax.GradientTransformationExtraArgs:
    """Sets the updates of parameters to 0 while they are frozen."""

    def update(updates, state, params=None, *, infos, **_):
        check_depths(infos)
        lowest = find_lowest(infos)

        # Only the update is gated: moments are kept of all gradients, and their norm is of all.
        def gate(u, info: ParamInfo):
            # A comparison, not a branch: the layers of a stack differ within one array.
            above = broadcast_layers_above(info, u)
            return jnp.where(is_learning(state.updates, above, lowest), u, 0)

        return jax.tree.map(gate, updates, infos), Steps(state.updates + 1)

    return optax.GradientTransformationExtraArgs(lambda _: Steps(jnp.zeros((), jnp.int32)), update)


def find_lowest(infos: Any) -> int:
    """Returns the number of layers above what lies lowest: the embedding's, of all layers."""
    return max(int(np.max(info.layers_above)) for info in jax.tree.leaves(infos))


def gradual_unfreezing(every: int) -> optax.GradientTransformationExtraArgs:
    """Lets the top layer learn after `every` steps and each next one as much later."""
    # Parameters above all layers (-1) learn from the start; embeddings come last.  In the paper
    # `every` is an epoch.
    return unfreezing(lambda updates, above, _: updates >= (above + 1) * every)


def stage_unfreezing(
    begins: Sequence[int], chain_thaw: bool
) -> optax.GradientTransformationExtraArgs:
    """Lets one layer more learn in each stage, from the top, and everything in the last.

    Args:
        begins: the step at which each stage begins.  In the first what lies above all layers
            learns.
        chain_thaw: instead each stage between the first and the last trains a single layer, from
            the bottom (Felbo et al. 2017, arXiv 1708.00524).
    """
    last = len(begins) - 1

    def is_learning(updates, above, lowest):
        stage = jnp.searchsorted(jnp.asarray(begins), updates, side="right") - 1
        # Chain thaw: stage 1 is the embeddings', and each later one of the layer above.
        learns = above == lowest - (stage - 1) if chain_thaw else above < stage
        return jnp.where(stage == 0, above < 0, learns) | (stage == last)

    return unfreezing(is_learning)
