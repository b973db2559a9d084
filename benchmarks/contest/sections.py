"""Completes sections of a recipe, so that PyTorch's side knows no default of ours."""

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from flax import linen as nn
from ml_collections import ConfigDict

import modules
from modules.heads.classifier import Classifier
from pretrain.training import optimizer
from pretrain.training.schedules import Schedule


def freeze_recipe(config: ConfigDict) -> dict[str, Any]:
    """Returns a recipe as JSON has it, at its full learning rate from the first step on."""
    recipe = json.loads(config.to_json_best_effort())
    # A schedule costs no time, and without one a few steps show that the loss falls.
    recipe["optim"] |= {"warmup": 0, "decay": "constant"}
    return resolve_task(recipe) if "task" in recipe else recipe


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
    model, task = recipe["model"], recipe["task"]
    given = {name: x for name, x in task["head"].items() if x is not None}
    head = resolve_fields(Classifier(C=1, **given))
    del head["C"]  # the number of labels, no field of the section
    return {
        **recipe,
        "model": resolve_fields(modules.build(**model)) | {"name": model["name"]},
        "optim": resolve_optim(recipe["optim"]),
        "task": {**task, "head": head},
    }
