"""A run's numbers at Weights & Biases: pip install wandb.

WANDB_PROJECT, WANDB_MODE=offline and its other variables hold as usual.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pretrain.training.reports import trackers


class Tracker:
    """The run of the workdir's name, under one id in all of its lives."""

    is_remote = True

    def __init__(self, workdir: Path, step: int, config: Mapping[str, Any]):
        wandb = trackers.import_package("wandb")
        known = trackers.find_id(workdir, "wandb")
        self.run = wandb.init(
            id=known or trackers.save_id(workdir, "wandb", wandb.util.generate_id()),
            resume="allow",
            name=workdir.name,
            project=os.environ.get("WANDB_PROJECT", "quartet"),
            dir=str(workdir),
            config=dict(config),
        )
        # Its own count of steps cannot go back to a checkpoint: ours is a number like others.
        self.run.define_metric("step")
        self.run.define_metric("*", step_metric="step")

    def add(self, step: int, values: Mapping[str, float]) -> None:
        self.run.log({"step": step, **values})

    def flush(self) -> None:
        return  # it sends what it has by itself

    def close(self) -> None:
        self.run.finish()
