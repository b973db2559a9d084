"""Published weights in tests: our parameters made of their arrays as a table says, and back."""

from collections.abc import Mapping

import jax
import numpy as np

import modules
from pretrain import verified
from pretrain.finished import drawn
from pretrain.formats import Spec
from pretrain.published.names import Shapes, Table, account


def shapes(model: Mapping, heads: Shapes | None = None) -> dict[str, tuple[int, ...]]:
    """Of all parameters, by path, of a backbone with these fields."""
    backbone = modules.build(**model)
    leaves = verified.flatten({"backbone": jax.eval_shape(lambda: drawn(backbone))})
    return {name: x.shape for name, x in leaves.items()} | dict(heads or {})


def randomly(shapes: Shapes, seed: int = 0) -> dict[str, np.ndarray]:
    """Parameters so large that all of them matter, the norms' scales around 1."""
    rng = np.random.default_rng(seed)
    draws = {name: rng.normal(0, 0.4, shape) for name, shape in shapes.items()}
    return {name: np.float32(x + name.endswith("/scale_D")) for name, x in draws.items()}


def specs(arrays: Mapping[str, np.ndarray]) -> dict[str, Spec]:
    return {name: Spec(x.shape, x.dtype) for name, x in arrays.items()}


def read(table: Table, shapes: Shapes, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Our parameters, by path; every array and every parameter is accounted for."""
    settled = account(table, shapes, specs(arrays))
    made = {name: np.full(shape, np.nan, np.float32) for name, shape in shapes.items()}
    for name in settled.absent:
        made[name][...] = 0
    for link in table.links:
        shape = shapes[link.ours][len(link.at) :]
        made[link.ours][link.at] = link.part(arrays[link.theirs], shape)
    return made


def written(
    table: Table, shapes: Shapes, params: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Their arrays, copies too."""
    made = {
        name: np.full(spec.shape, np.nan, spec.dtype)
        for name, spec in table.specs(shapes, np.float32).items()
    }
    for link in table.links:
        shape = shapes[link.ours][len(link.at) :]
        link.part(made[link.theirs], shape)[...] = params[link.ours][link.at]
    return made | {copy: made[name] for copy, name in table.copies.items()}


def backbone(params: Mapping[str, np.ndarray]):
    """The tree of the backbone's parameters."""
    return verified.nest(params)["backbone"]
