"""A run's numbers in MLflow: pip install mlflow.

MLFLOW_TRACKING_URI and MLFLOW_EXPERIMENT_NAME hold as usual.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pretrain.runtime.run_config import flatten
from pretrain.training.reports import trackers

LONGEST = 500  # characters of a parameter that MLflow takes


class Tracker:
    """The run of the workdir's name, under one id in all of its lives."""

    is_remote = True

    def __init__(self, workdir: Path, step: int, config: Mapping[str, Any]):
        self.mlflow = trackers.import_package("mlflow")
        self.mlflow.set_experiment(os.environ.get("MLFLOW_EXPERIMENT_NAME", "quartet"))
        if known := trackers.find_id(workdir, "mlflow"):
            self.mlflow.start_run(run_id=known)
            return
        run = self.mlflow.start_run(run_name=workdir.name)
        trackers.save_id(workdir, "mlflow", run.info.run_id)
        # Checks the first start alone: a parameter that is there cannot change.
        recipe = {name: str(value)[:LONGEST] for name, value in flatten(dict(config)).items()}
        self.mlflow.log_params(recipe)

    def add(self, step: int, values: Mapping[str, float]) -> None:
        self.mlflow.log_metrics(dict(values), step=step)

    def flush(self) -> None:
        return  # each call has sent its numbers

    def close(self) -> None:
        self.mlflow.end_run()
