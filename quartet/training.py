"""Trains recipes from Python, without flags and as part of the caller's process."""

import copy
import importlib
import pathlib
from collections.abc import Mapping
from typing import Any

from ml_collections import ConfigDict

from pretrain.checkpoint.paths import find_workdir
from pretrain.runtime import recipe_files
from pretrain.runtime.errors import TerminatedError
from pretrain.runtime.job_options import JobOptions
from pretrain.runtime.recipe_check import check_key, check_recipe
from pretrain.training.reports.results import list_jobs
from quartet.trained_run import TrainedRun, load


def load_recipe(name: str, changes: Mapping[str, Any] | None = None) -> ConfigDict:
    """Loads a recipe by its name, as "bert:mini", "finetune/sst2" or "mine/recipe.py".

    Args:
        changes: values by dotted name, as {"optim.lr": 1e-4}.

    Raises:
        UserError: there is no such recipe or key, or the recipe fails.
    """
    return apply_changes(recipe_files.load(recipe_files.find(name)), changes or {})


def apply_changes(config: ConfigDict, changes: Mapping[str, Any]) -> ConfigDict:
    """Sets values of a recipe by dotted name, and returns it.

    Raises:
        UserError: the recipe has no such key.
    """
    for key in changes:
        check_key(config, key)
    config.update_from_flattened_dict(dict(changes))
    return config


def train(
    recipe: ConfigDict | str,
    workdir: str | pathlib.Path,
    changes: Mapping[str, Any] | None = None,
    *,
    accept_changes: bool = False,
) -> TrainedRun:
    """Trains a recipe in a workdir; called again, it goes on from the last checkpoint.

    Args:
        recipe: of pretraining or of fine-tuning, or its name.
        changes: values by dotted name, as {"optim.lr": 1e-4}; a recipe that is given keeps its own.
        accept_changes: resumes although the recipe or the data have changed.

    Returns:
        The run; the first, where the recipe asks for several seeds or folds.

    Raises:
        UserError: the recipe does not build, or the workdir holds a run of another.
        TerminatedError: training was stopped before its end.
    """
    if isinstance(recipe, str):
        config = load_recipe(recipe, changes)
    else:
        config = apply_changes(copy.deepcopy(recipe), changes or {})
    # A recipe with an objective is pretraining, one with examples is fine-tuning.
    room = "pretrain" if "objective" in config else "finetune"
    job = importlib.import_module(f"{room}.main")
    check_recipe(config, job.SECTIONS, "the recipe")
    workdir = find_workdir(workdir)
    # The caller's process has its own life: it joins no others and keeps its signals.
    options = JobOptions(accept_changes=accept_changes, joins=False)
    if job.main(config, workdir, options):
        raise TerminatedError(f"{workdir}: stopped before its end; the same call goes on")
    return load(list_jobs(workdir)[0])
