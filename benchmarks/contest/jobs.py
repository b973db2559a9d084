"""Builds what ours trains from a recipe: an objective on synthetic text, or a task on rows."""

from types import SimpleNamespace
from typing import Any

from flax import linen as nn

import modules
from benchmarks.contest import synthetic_data, synthetic_rows
from finetune.inputs.batches import Examples
from finetune.job import build_task
from finetune.starting_point import Start
from pretrain import objectives
from pretrain.data.batches import BatchLayout


def build(recipe: dict[str, Any]) -> tuple[nn.Module, BatchLayout]:
    """Builds the module to train and the layout of its batches, as the recipe's command does."""
    return build_fine_tuning(recipe) if "task" in recipe else build_pretraining(recipe)


def build_pretraining(recipe: dict[str, Any]) -> tuple[nn.Module, BatchLayout]:
    """Builds the objective, as `pretrain.main` does."""
    backbone = modules.build(**recipe["model"], execution=recipe["execution"])
    objective = objectives.build(
        backbone=backbone,
        head=recipe.get("head"),
        special=synthetic_data.SPECIAL,
        execution=recipe["execution"],
        **recipe["objective"],
    )
    return objective, synthetic_data.build_layout(recipe)


def build_fine_tuning(recipe: dict[str, Any]) -> tuple[nn.Module, BatchLayout]:
    """Builds the task on a network from scratch, as `finetune.main` does."""
    B, L, lengths = (recipe["batches"].get(name, ()) for name in ("B", "L", "lengths"))
    words = SimpleNamespace(
        V=recipe["model"]["V"],
        special=synthetic_data.SPECIAL,
        encode=lambda texts: [[] for _ in texts],
    )
    execution = {name: x for name, x in recipe["execution"].items() if x is not None}
    start = Start(recipe["text_format"], recipe["model"], words, None, execution, {})
    _, task = build_task(start, recipe["task"], L)
    rows = synthetic_rows.draw_rows(recipe)
    return task, Examples(rows, B=B, L=L, seed=recipe["seed"], shuffle=True, lengths=lengths)
