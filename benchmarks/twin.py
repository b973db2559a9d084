"""Trains the PyTorch twin of a classifier recipe on the very rows and vectors of our job.

    python -m benchmarks.twin --config=configs/finetune/textcnn.py:trec --config.num_seeds=5

Seeds and folds are those of `finetune.main`, as are the rows, their labels and splits, the vectors
that words begin with, and the metrics.  The order of the rows, dropout and the other initial
weights are drawn by PyTorch.  Both evaluate at the same steps, and the best by `train.best` counts;
the last where it is "".

    --peer_python=...   the Python that has torch, if this one has not
    --threads=1         of PyTorch
    --json=...          a file to write the scores to, after each job
"""

import json
import math
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from absl import flags
from ml_collections import ConfigDict

from benchmarks.contest import options
from benchmarks.contest.options import JSON, PEER_PYTHON, THREADS
from benchmarks.contest.runner import run_job
from benchmarks.contest.sections import resolve_fields, resolve_optim
from finetune.job import Job, build_job, list_recipes
from pretrain import cli
from pretrain.runtime.errors import UserError
from pretrain.runtime.progress import say
from pretrain.training.metrics import split_direction
from pretrain.training.reports import results

flags.declare_key_flag("config")
flags.adopt_module_key_flags(options)


def main(config: ConfigDict) -> None:
    """Trains the twin of each seed and fold, and prints mean and deviation of their scores."""
    recipes, report = list_recipes(config), {}
    for name, recipe in recipes.items():
        entry = report[name] = train_twin(recipe)
        scores = "  ".join(f"{metric} {value:.4f}" for metric, value in entry["values"].items())
        print(f"{name or 'twin'}: step {entry['step']} of {entry['steps']}: {scores}", flush=True)
        # After every job: what was trained in hours outlasts a later failure.
        if JSON.value:
            Path(JSON.value).write_text(json.dumps({"jobs": report}, indent=1))
    if len(report) > 1:
        what = "folds" if config.data.get("folds") else "seeds"
        stats = results.compute_stats([entry["values"] for entry in report.values()])
        results.print_stats(stats, f"{len(report)} {what}")


def train_twin(recipe: ConfigDict) -> dict[str, Any]:
    """Trains the twin of one job.

    Returns:
        Its seed and fold, its steps, the `step` that counts, the `values` there by split and
        metric, and the seconds of training.

    Raises:
        UserError: the job has no twin, or PyTorch failed.
    """
    job, began = build_job(recipe, say), time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        paths = {name: f"{folder}/{name}.npz" for name in ("arrays", "logits")}
        np.savez(paths["arrays"], **export_arrays(job))  # type: ignore[arg-type]
        description = Path(folder, "job.json")
        description.write_text(json.dumps(describe(recipe, job) | paths))
        run_job("benchmarks.peers.twin", description, PEER_PYTHON.value, THREADS.value)
        with np.load(paths["logits"]) as arrays:
            evaluations = {name: arrays[name] for name in arrays}
    step, values = choose_best(job, recipe.train, evaluations)
    return dict(
        seed=recipe.seed,
        fold=recipe.data.get("fold"),
        steps=recipe.optim.steps,
        step=step,
        values=values,
        seconds=time.monotonic() - began,
    )


def export_arrays(job: Job) -> dict[str, np.ndarray]:
    """Returns the rows and labels of each split, as "dev/label_B", and the vectors, rows_VD.

    Raises:
        UserError: the rows are none of one text, padded at its end.
    """
    arrays: dict[str, np.ndarray] = {}
    for split, layout in {"train": job.train, **job.evals}.items():
        rows = layout.arrays
        if rows.keys() != {"tokens_BL", "valid_BL", "label_B"}:
            raise UserError(f"a twin reads rows of one text, not {', '.join(rows)}")
        lengths_B = rows["valid_BL"].sum(1)
        # Lengths are all that a packed sequence of PyTorch's knows of a row.
        if (rows["valid_BL"] != (np.arange(job.train.L) < lengths_B[:, None])).any():
            raise UserError("a twin reads rows that are padded at their ends")
        # PyTorch packs no row without a word: it reads a word of padding there.
        arrays |= {
            f"{split}/tokens_BL": rows["tokens_BL"],
            f"{split}/lengths_B": np.maximum(lengths_B, 1),
            f"{split}/label_B": rows["label_B"],
        }
    return arrays | ({"rows_VD": job.start.vectors.rows_VD} if job.start.vectors else {})


def describe(recipe: ConfigDict, job: Job) -> dict[str, Any]:
    """Returns what PyTorch is to do, as JSON; all fields are set, also those left to a default."""
    # Fields that are off say nothing: they need no twin.
    section = {name: x for name, x in job.only.section["encoder"].items() if x}
    if section != {"name": "backbone"} or not hasattr(job.task, "head"):
        raise UserError("task: a twin classifies the states of a backbone and nothing else")
    return dict(
        model=resolve_fields(job.task.backbone) | {"name": job.start.model["name"]},
        head=resolve_fields(job.task.head),
        optim=resolve_optim(recipe.optim.to_dict()),
        B=recipe.batches.B,
        eval_B=recipe.batches.eval_B,
        eval_every=recipe.train.eval_every,
        seed=recipe.seed,
        threads=THREADS.value,
    )


def choose_best(
    job: Job, train: ConfigDict, evaluations: Mapping[str, np.ndarray]
) -> tuple[int, dict[str, float]]:
    """Returns the step that counts, as `pretrain.training.keep_best` chooses, and its scores.

    Args:
        train: the section `train` of the recipe.
        evaluations: the logits [evaluations, rows, C] of each split, and their `steps`.

    Raises:
        UserError: there is no such number as `train.best`.
    """
    (metric, sign), best_value = split_direction(train.best), -math.inf
    best: tuple[int, dict[str, float]] = 0, {}
    for number, step in enumerate(evaluations["steps"].tolist()):
        values = {
            f"{split}/{name}": value
            for split in job.evals
            for name, value in job.score(split, {"logits_BC": evaluations[split][number]}).items()
        }
        if metric and metric not in values:
            raise UserError(f"train.best={train.best!r}: a twin has {', '.join(values)}")
        value = step if not metric else sign * values[metric]
        if value > best_value:
            best, best_value = (step, values), value
    return best


if __name__ == "__main__":
    cli.run(main, recipe=["seed", "epochs", "data", "task.name", "batches.B", "optim.lr"])
