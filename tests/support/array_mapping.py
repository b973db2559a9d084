"""Published weights in tests: our parameters made of their arrays as a table says, and back."""

import pathlib
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

import modules
from modules.backbones import init_params
from modules.heads import language_model
from pretrain.checkpoint import named_leaves, streaming_writer
from pretrain.conversion.name_map import Shapes, Table, reconcile
from pretrain.conversion.systems import ReleaseSpec
from pretrain.formats import Spec
from pretrain.inference import trained_run
from pretrain.runtime import run_config

PUBLISHED = pathlib.Path(__file__).parents[3] / "shared" / "fixtures" / "published"


def shapes(
    model: Mapping[str, Any], head: Mapping[str, Any] | None = None
) -> dict[str, tuple[int, ...]]:
    """Of all parameters, by path, of a backbone and a head with these fields."""
    backbone = modules.build(**model)
    own = language_model.param_shapes(language_model.build(backbone, **(head or {})))
    parts = {"backbone": jax.eval_shape(lambda: init_params(backbone)), "head": own}
    leaves = named_leaves.flatten(parts)
    return {name: x.shape for name, x in leaves.items()}


def randomly(shapes: Shapes, seed: int = 0) -> dict[str, np.ndarray]:
    """Parameters so large that all of them matter, the norms' scales around 1."""
    rng = np.random.default_rng(seed)
    draws = {name: rng.normal(0, 0.4, shape) for name, shape in shapes.items()}
    return {name: np.float32(x + name.endswith("/scale_D")) for name, x in draws.items()}


def specs(arrays: Mapping[str, np.ndarray]) -> dict[str, Spec]:
    return {name: Spec(x.shape, x.dtype) for name, x in arrays.items()}


def read(table: Table, shapes: Shapes, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Our parameters, by path; every array and every parameter is accounted for."""
    settled = reconcile(table, shapes, specs(arrays))
    made = {name: np.full(shape, np.nan, np.float32) for name, shape in shapes.items()}
    for name in settled.absent:
        made[name][...] = 0
    for link in table.links:
        part = made[link.ours][link.at]
        part[...] = link.read(arrays[link.theirs], part.shape)
    return made


def written(
    table: Table, shapes: Shapes, params: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Their arrays, without copies; NaN is what no parameter has filled."""
    made = {
        name: np.full(spec.shape, np.nan, spec.dtype)
        for name, spec in table.specs(shapes, np.float32).items()
    }
    for link in table.links:
        link.write(made[link.theirs], params[link.ours][link.at])
    return made


def assert_same(found: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray]) -> None:
    """Bit for bit, and nothing besides."""
    assert found.keys() == expected.keys()
    for name, x in expected.items():
        np.testing.assert_array_equal(found[name], x, err_msg=name)


def assert_round_trip(build_table, kind: str, shapes: Shapes) -> Table:
    """Asserts that parameters come back as they went out, but for absent ones, then zeros."""
    ours, table = randomly(shapes), build_table(kind, shapes)
    theirs = written(table, shapes, ours)
    assert not any(np.isnan(x).any() for x in theirs.values())
    ours |= {name: np.zeros_like(ours[name]) for name in table.absent if name in ours}
    assert_same(read(build_table(kind, shapes, list(theirs)), shapes, theirs), ours)
    return table


def backbone(params: Mapping[str, np.ndarray]):
    """The tree of the backbone's parameters."""
    return named_leaves.nest(dict(params))["backbone"]


def run(described: ReleaseSpec, params: Mapping[str, np.ndarray], workdir: pathlib.Path):
    """A run with these weights, opened."""
    streaming_writer.write(workdir, 0, ((f"params/{name}", x) for name, x in params.items()))
    described.tokenizer.save(workdir / "tokenizer")
    sections = dict(
        model=described.model,
        head=described.head,
        objective=described.objective,
        text_format=described.text_format,
        train=dict(average=0.0),
    )
    run_config.write_config(workdir, sections)
    return trained_run.load_run(workdir)
