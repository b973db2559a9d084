"""Opens the folder of a run for a job: its processes, its lock, its recipe."""

import contextlib
import json
import pathlib
import shutil
from collections.abc import Callable, Iterable, Iterator

import jax
from ml_collections import ConfigDict

from modules import plugins
from pretrain.checkpoint.paths import list_steps
from pretrain.data.batches import BatchShapes
from pretrain.distributed import device_count, lost_processes, processes
from pretrain.distributed.sharding import plan_layout
from pretrain.runtime import compile_cache
from pretrain.runtime.errors import UserError
from pretrain.runtime.files import find_unused_path, write_file
from pretrain.runtime.job_options import DEFAULTS, JobOptions
from pretrain.runtime.locks import lock_workdir
from pretrain.runtime.run_config import COMMAND, diff_configs, read_config, write_config
from pretrain.runtime.sections import call_section, name_section
from pretrain.training import optimizer
from pretrain.training.train_config import TrainConfig

# Settings that a resumed run may change: where and how often, not what is computed.
FREE = (
    "mesh",
    "execution",
    "evals",
    "profile",
    "corpus.cache",
    "train.log_every",
    "train.norms",
    "train.eval_every",
    "train.eval_batches",
    "train.save_every",
    "train.keep",
    "train.keep_every",
    "train.trackers",
    "num_seeds",  # of jobs beside this one: more seeds go on where fewer were
)


@contextlib.contextmanager
def open_workdir(
    config: ConfigDict, workdir: pathlib.Path, options: JobOptions = DEFAULTS
) -> Iterator[Callable[[], None]]:
    """Joins the processes of the job and locks the workdir.

    Yields:
        The function that writes the recipe into the workdir.

    Raises:
        UserError: another job is using the workdir, or the run there has another recipe; or a
            value of the recipe is none that any run could have.
    """
    # First: such a value would be offered to continue under, where the run has another.
    check_training(config)
    if options.joins:
        processes.join(options.heartbeat, options.join_timeout)
    compile_cache.keep(workdir.parent / ".compiled" / (options.name or workdir.name))
    # One lock for the whole job: on a shared disk its processes would refuse one another.
    lock = lock_workdir(workdir) if jax.process_index() == 0 else contextlib.nullcontext()
    with lock, lost_processes.watch_peers(workdir, options.heartbeat):
        recipe = json.loads(config.to_json_best_effort())
        changed = _find_changes(recipe, workdir, options.accept_changes)
        # Written only once nothing can be refused: a refused job leaves the old recipe in place.
        yield lambda: _keep_recipe(recipe, workdir, bool(changed), options.command)


def check_training(
    config: ConfigDict, batches: Iterable[BatchShapes] = (), evals: Iterable[BatchShapes] = ()
) -> None:
    """Refuses what no run could train with, before anything is read or compiled.

    Args:
        batches, evals: layouts to train on and to evaluate on, whose rows are to divide over the
            devices, as far as these are known before the processes join.

    Raises:
        UserError: a value of the recipe is none that any run could have, or rows do not divide.
    """
    with name_section("train"):
        plan = plugins.construct(TrainConfig, **config.train)
    with name_section("optim"):
        optimizer.make(**config.optim)
    layout = call_section("mesh", plan_layout, config.mesh, count=device_count.predict_count())
    for data in batches:
        layout.check_rows(data.B, plan.parts)
    for data in evals:
        layout.check_rows(data.B)


def _find_changes(recipe: dict, workdir: pathlib.Path, accepts: bool) -> list[str]:
    """Lists where the recipe differs from the workdir's; UserError if in what is computed."""
    changed = []
    if holds_run(workdir):
        changed = diff_configs(read_config(workdir), recipe)
        if (grave := [x for x in changed if not is_free(x)]) and not accepts:
            lines = "".join(f"\n  {line}" for line in grave)
            raise UserError(
                f"{workdir} holds a run of another recipe; take another --workdir, or continue "
                f"it under this one with --accept_changes:{lines}"
            )
    return changed


def holds_run(workdir: pathlib.Path) -> bool:
    """Checks whether a folder holds what another recipe could contradict."""
    # A run that never saved has nothing of the kind.
    folders = workdir / "checkpoints", workdir / "best/checkpoints"
    return (workdir / "config.json").exists() and any(map(list_steps, folders))


def is_free(difference: str) -> bool:
    """Checks whether a run may resume with such a difference, as "mesh.data: 1 -> 2"."""
    key = difference.partition(":")[0]
    # With the dots a whole section is free by its name, but train.keep does not free train.keeper.
    return any(f"{key}.".startswith(f"{free}.") for free in FREE)


def _keep_recipe(recipe: dict, workdir: pathlib.Path, is_changed: bool, command: str) -> None:
    if jax.process_index() == 0:
        if is_changed:  # the results so far were computed under the old recipe
            shutil.copy(workdir / "config.json", find_unused_path(workdir / "config-before.json"))
        write_config(workdir, recipe)
        if command:
            write_file(workdir / COMMAND, f"{command}\n".encode())
