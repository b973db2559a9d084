"""Slices of TPUs without TPUs: devices that know their coordinates, or those of the tests."""

from types import SimpleNamespace

import jax
import numpy as np

from pretrain.aot import chips, step_memory, tpu_specs
from tests.support import tiny_runs


def make_slice(kind: str, *shape: int, devices=()) -> chips.Slice:
    """Returns a slice of this shape."""
    name = f"{kind}:{'x'.join(map(str, shape))}"
    return chips.Slice(name, tpu_specs.CHIPS[kind], shape, devices)


def grid_devices(*shape: int) -> list[SimpleNamespace]:
    """Returns a device per cell of a grid."""
    return [SimpleNamespace(coords=at) for at in np.ndindex(*shape)]


def compile_step(recipe: str, changes: dict | None = None, **mesh: int) -> step_memory.Step:
    """Compiles a tiny recipe's step for the devices of the tests."""
    config = tiny_runs.get_config(recipe)
    config.update_from_flattened_dict(changes or {})
    config.mesh.update(mesh)
    place = make_slice("v5e", 2, 4, devices=jax.devices())
    steps = step_memory.build_steps(config, place)
    return step_memory.compile_step(steps, step_memory.build_batch_shapes(config)[-1], place)
