"""Runs our train step of a recipe, exactly as `pretrain.training.loop` does."""

import contextlib
import itertools
from types import SimpleNamespace
from typing import Any

import jax
from flax import linen as nn

import modules
from benchmarks.contest import synthetic_data, synthetic_rows, worker
from finetune.inputs.batches import Examples
from finetune.job import build_task
from finetune.starting_point import Start
from pretrain import objectives
from pretrain.data.batches import BatchLayout
from pretrain.distributed.sharding import Layout, make_mesh
from pretrain.runtime import malloc
from pretrain.training import optimizer
from pretrain.training.compiled_steps import Steps
from pretrain.training.metrics import mean


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


class Ours:
    """The contender of the whole step: transfer, corruption, gradients, clipping, update."""

    def __init__(self, settings: dict[str, Any]):
        recipe = settings["recipe"]
        objective, train = build(recipe)
        self.layout, self.B = Layout(make_mesh(**recipe["mesh"])), train.B
        steps = Steps(
            objective,
            optimizer.make(**recipe["optim"])[0],
            self.layout,
            [train],
            seed=recipe["seed"],
            parts=recipe["train"]["parts"],
            average=recipe["train"]["average"],
        )
        self.train, self.state = steps.train, steps.init()
        # Drawn before the clock starts, as the peers' are.
        self.batches = itertools.cycle([train.batch(i) for i in range(synthetic_data.BATCHES)])
        self.facts = {
            "flops": objective.flops(train.B, recipe["batches"]["L"]),
            "parameters": sum(x.size for x in jax.tree.leaves(self.state.params)),
            "devices": jax.device_count(),
            "device": jax.devices()[0].device_kind,
            "jax": jax.__version__,
        }

    def step(self) -> Any:
        batch = self.layout.shard_batch(next(self.batches), self.B)
        self.state, metrics = self.train(self.state, batch)
        return metrics  # on the device: to read them here would wait for the step

    def finish(self) -> None:
        jax.block_until_ready(self.state)

    def loss(self, result: Any) -> float:
        return mean(jax.device_get(result.sums["loss"]))

    def peak_bytes(self) -> int:
        # The allocator of a CPU keeps no statistics.
        stats = jax.local_devices()[0].memory_stats()
        return stats["peak_bytes_in_use"] if stats else worker.resident_peak()

    def profile(self, folder: str) -> contextlib.AbstractContextManager:
        return jax.profiler.trace(folder)


if __name__ == "__main__":
    malloc.keep_memory()  # as every job does
    worker.serve(Ours)
