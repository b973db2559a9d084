"""Trains recipes from Python, without flags and as part of the caller's process."""

import copy
import importlib
import os
import pathlib
from collections.abc import Mapping
from typing import Any

from ml_collections import ConfigDict

from pretrain.checkpoint.paths import find_workdir
from pretrain.runtime import recipe_files
from pretrain.runtime.errors import TerminatedError, UserError
from pretrain.runtime.job_options import JobOptions
from pretrain.runtime.recipe_check import check_recipe
from pretrain.training.reports.results import list_jobs
from quartet.arguments import check_kind, describe
from quartet.changes import apply_changes
from quartet.trained_run import TrainedRun, load
from quartet.wording import explain_to_callers


@explain_to_callers()
def load_recipe(name: str | pathlib.Path, changes: Mapping[str, Any] | None = None) -> ConfigDict:
    """Loads a recipe by its name, as "bert:mini", "finetune/sst2" or "mine/recipe.py".

    Args:
        changes: values by dotted name, as {"optim.lr": 1e-4}.

    Raises:
        UserError: there is no such recipe or key, a value is of another kind than the recipe's,
            or the recipe fails.
    """
    if not isinstance(name, str | os.PathLike):
        raise UserError(f'a recipe has a name, as "bert:mini", and not {describe(name)}')
    config = recipe_files.load(recipe_files.find(os.fspath(name)))
    return config if changes is None else apply_changes(config, changes)


@explain_to_callers()
def train(
    recipe: ConfigDict | str | pathlib.Path,
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
        UserError: the recipe or a change of it is none, the recipe does not build, or the workdir
            holds a run of another.
        TerminatedError: training was stopped before its end.
    """
    check_kind("train(accept_changes=...)", accept_changes, bool)
    if not isinstance(workdir, str | os.PathLike) or not os.fspath(workdir):
        raise UserError(f"train(...) takes a workdir, a folder, and was given {describe(workdir)}")
    if isinstance(recipe, ConfigDict):
        config = apply_changes(copy.deepcopy(recipe), {} if changes is None else changes)
    else:
        config = load_recipe(recipe, changes)
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
