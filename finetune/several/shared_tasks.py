"""Trains several tasks on one backbone."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
from flax import linen as nn

from modules.layers import params
from modules.metrics import Metrics, Sum
from pretrain.data.batches import split_tasks

TASKS = "tasks_"  # begins the name of a task's parameters: "tasks_sst1/head/w_DC"


class SharedTasks(nn.Module):
    """Runs the tasks that a batch has arrays of; it is a `finetune.tasks.Task` as they are.

    A task's parameters beside the backbone's are its own: steps without the task leave them alone.

    Attributes:
        tasks: by name, all on this backbone.
        weights: of each task's loss.
    """

    backbone: nn.Module | None
    tasks: Mapping[str, nn.Module]
    weights: Mapping[str, float]

    def setup(self):
        params.set_tasks(self, **{TASKS + name: name for name in self.tasks})

    @property
    def compares_rows(self) -> bool:
        """Tells that a task compares all rows of a batch, which then is not read in parts."""
        return any(getattr(task, "compares_rows", False) for task in self.tasks.values())

    def __call__(self, batch: Mapping[str, Any], *, train: bool) -> Metrics:
        """Computes the metrics of a batch of one task; in training those of `weigh_metrics`."""
        by_task = {
            name: self.tasks[name](rows, train=train) for name, rows in split_tasks(batch).items()
        }
        if train:
            return weigh_metrics(by_task, self.weights)
        (metrics,) = by_task.values()
        return metrics

    def predict(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Computes the outputs of the task that the batch is of."""
        ((name, rows),) = split_tasks(batch).items()
        return self.tasks[name].predict(rows)

    def flops(self, B: int, L: int) -> float:
        return max(task.flops(B, L) for task in self.tasks.values())


def weigh_metrics(by_task: Mapping[str, Metrics], weights: Mapping[str, float]) -> Metrics:
    """Adds up what tasks minimise, each part a mean times the task's weight.

    Returns:
        "loss", the sum; beside it the tasks' metrics as they are, as "sst1_loss".
    """
    trained = [
        weights[task] * x.total / jnp.maximum(x.weight, 1e-9)
        for task, metrics in by_task.items()
        for x in metrics.values()
        if x.train
    ]
    # The step divides by it once: parts of a batch count by what they weigh.
    weight = sum(metrics["loss"].weight for metrics in by_task.values())
    named = {
        f"{task}_{name}": dataclasses.replace(x, train=False)
        for task, metrics in by_task.items()
        for name, x in metrics.items()
    }
    return {"loss": Sum(weight * sum(trained), weight, train=True), **named}
