"""Norms of gradients, weights and updates, by part of a model and layer of a stack.

They show where a gradient vanishes or explodes: of a healthy deep stack they are of one order in
all layers, and an update is about a thousandth of its weights.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from modules.layers.params import ParamInfo
from modules.metrics import Metrics, Sum
from pretrain.training.metrics import NORMS


@dataclasses.dataclass(frozen=True)
class GradientNorms:
    """Measures an update of the parameters inside the training step.

    Attributes:
        infos: a tree of `ParamInfo` that parallels the parameters; it knows the stacks of layers.
        clip: norm of the gradient above which it is clipped; 0: it never is.
    """

    infos: Any
    clip: float = 0.0

    def __call__(self, params: Any, grads: Any, updates: Any, norm: jax.Array) -> Metrics:
        """Returns the norms of every part, named as "norms/layers_03/grad".

        Args:
            params: the parameters before the update.
            grads: mean gradients before they are clipped.
            updates: what is added to the parameters.
            norm: the global norm of `grads`.

        Returns:
            "grad", "weight" and "update", which is relative to the weights, of each part; the
            share of clipped steps, "norms/clipped", where gradients are clipped.
        """
        grad, weight, update = (self.measure_parts(tree) for tree in (grads, params, updates))
        metrics: Metrics = {}
        for part in grad:
            has_weight = (weight[part] > 0).astype(jnp.float32)  # biases begin at 0
            ratio = update[part] / jnp.maximum(weight[part], 1e-30) * has_weight
            metrics |= {
                f"{NORMS}{part}/grad": Sum(grad[part], jnp.float32(1)),
                f"{NORMS}{part}/weight": Sum(weight[part], jnp.float32(1)),
                f"{NORMS}{part}/update": Sum(ratio, has_weight),
            }
        if self.clip:
            is_clipped = (norm > self.clip).astype(jnp.float32)
            metrics[f"{NORMS}clipped"] = Sum(is_clipped, jnp.float32(1), "share")
        return metrics

    def measure_parts(self, tree: Any) -> dict[str, jax.Array]:
        """Returns the norm of each part; their squares add up to the square of the whole's."""
        squares: dict[str, jax.Array] = {}
        for (path, x), info in zip(
            jax.tree_util.tree_leaves_with_path(tree), jax.tree.leaves(self.infos), strict=True
        ):
            for part, square in _sum_squares(part_name(path), x, info).items():
                squares[part] = squares.get(part, jnp.float32(0)) + square
        return {part: jnp.sqrt(square) for part, square in squares.items()}


def choose_norms(wanted: bool, optim: Mapping[str, Any]) -> Callable[[Any], GradientNorms] | None:
    """Returns what makes `GradientNorms` of the parameters' infos; None if they are not wanted.

    Args:
        wanted: the recipe's `train.norms`.
        optim: the recipe's section; its limit is of the scaled gradient, see `optimizer.clip_to`.
    """
    clip = optim.get("clip", 0.0) / optim.get("grad_scale", 1.0)
    return functools.partial(GradientNorms, clip=clip) if wanted else None


def part_name(path) -> str:
    """Returns the name of a parameter's part: a child of the backbone, or a top-level name."""
    names = [str(key.key) for key in path]
    return names[names.index("backbone") + 1] if "backbone" in names[:-1] else names[0]


def _sum_squares(part: str, x: jax.Array, info: ParamInfo) -> dict[str, jax.Array]:
    """Sums the squares of a parameter: one number, or one for each layer of a stack."""
    if not isinstance(info.layers_above, tuple):
        return {part: jnp.sum(jnp.square(x))}
    # One reduction over the whole stack, as slices of a sharded array would move it.
    squares_N = jnp.sum(jnp.square(x), range(1, x.ndim))
    return {f"{part}_{n:02}": squares_N[n] for n in range(len(info.layers_above))}
