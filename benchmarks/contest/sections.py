"""Completes sections of a recipe, so that PyTorch's side knows no default of ours."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from flax import linen as nn

from benchmarks.contest import jobs
from pretrain.training import optimizer
from pretrain.training.schedules import Schedule


def resolve_fields(module: nn.Module) -> dict[str, Any]:
    """Returns the fields of a module that JSON can say, those with a default included."""
    fields = {x.name: getattr(module, x.name) for x in dataclasses.fields(module)}
    return {
        name: x
        for name, x in fields.items()
        if name not in ("name", "parent") and isinstance(x, str | float | int | list | tuple | None)
    }


def resolve_optim(section: Mapping[str, Any]) -> dict[str, Any]:
    """Returns all fields of a section `optim`, those with a default included."""
    fields = [*dataclasses.fields(Schedule), *dataclasses.fields(optimizer.Optimizer)]
    return {x.name: x.default for x in fields} | dict(section)


def resolve_task(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a recipe of fine-tuning with all fields of `model`, `optim` and `task.head`."""
    task, _ = jobs.build_fine_tuning(dict(recipe))
    head = resolve_fields(task.head)
    del head["C"]  # the number of labels, no field of the section
    return {
        **recipe,
        "model": resolve_fields(task.backbone) | {"name": recipe["model"]["name"]},
        "optim": resolve_optim(recipe["optim"]),
        "task": {**recipe["task"], "head": head},
    }
