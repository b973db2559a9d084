"""Runs every command: flags, exit codes, errors as one line, the workdir and its lock."""

import contextlib
import functools
import json
import pathlib
import re
import runpy
import shutil
import traceback
from collections.abc import Callable, Iterable, Iterator

import jax
from absl import app, flags, logging
from ml_collections import ConfigDict, config_flags

from pretrain import arguments
from pretrain.checkpoint.paths import find_folder
from pretrain.distributed import lost_processes, processes
from pretrain.runtime import compile_cache, malloc, recipe_meanings, recipe_ranges
from pretrain.runtime.errors import UserError
from pretrain.runtime.files import find_unused_path
from pretrain.runtime.locks import lock_workdir
from pretrain.runtime.run_config import diff_configs, read_config, write_config

CONFIG = config_flags.DEFINE_config_file(
    "config",
    help_string="The recipe, as path.py:preset; --config.optim.lr=1e-3 changes a value of it.",
)
WORKDIR = flags.DEFINE_string("workdir", None, "The run's folder; default runs/<recipe>-<preset>.")
EXPLAIN = flags.DEFINE_string(
    "explain", None, "Print every key of the recipe, or of --explain=optim, and what it means."
)
LIST = flags.DEFINE_bool("list", False, "Print the recipes, their presets and their parameters.")
ACCEPT_CHANGES = flags.DEFINE_bool(
    "accept_changes", False, "Resume although the recipe or the data have changed."
)
VERIFY = flags.DEFINE_bool(
    "verify", False, "Read all of the prepared corpus at the start, to find damage to it."
)
HEARTBEAT = flags.DEFINE_integer(
    "heartbeat", 60, "Seconds without a sign of life after which a process counts as lost.", 2
)
JOIN_TIMEOUT = flags.DEFINE_integer(
    "join_timeout", 300, "Seconds to wait until all processes of the run have joined.", 1
)

# What a run may change its mind about: where and how often, not what is computed.
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
)


def run(
    main: Callable[..., int | None],
    *,
    recipe: Iterable[str] | None = None,
    required: Iterable[str] = (),
    has_words: bool = False,
    interrupted: str = "",
) -> None:
    """Runs the main of a command as this process's job.

    The process ends with 0 if the work is done, 75 if it was stopped before its end (as `main`
    returns), 1 and a line for an error that the user can put right, 2 and a line for a command
    line that cannot be read, and a traceback for any other error.

    Args:
        main: takes the recipe and the words, of these what the command has; None is exit code 0.
        recipe: what the recipe is to have, sections or dotted names; None: there is no recipe.
        required: flags that must be given.
        has_words: whether the command takes words that are no flags.
        interrupted: what Ctrl-C leaves, as "nothing was made".
    """

    def run_main(argv: list[str]) -> int | None:
        logging.set_verbosity(logging.WARNING)  # Orbax narrates every save
        with end_on_error(interrupted):
            if recipe is None:
                return main(argv[1:])
            if EXPLAIN.value is not None:
                print("\n".join(recipe_meanings.explain(CONFIG.value, EXPLAIN.value)))
                return 0
            check(CONFIG.value, recipe)
            return main(CONFIG.value, argv[1:]) if has_words else main(CONFIG.value)

    malloc.keep_memory()  # before JAX starts its threads
    flags.mark_flags_as_required([*required, *(["config"] if recipe is not None else [])])
    app.run(run_main, flags_parser=functools.partial(arguments.read, has_words=has_words))


def check(config: ConfigDict, keys: Iterable[str]) -> None:
    """Looks at a recipe before any work.

    Raises:
        UserError: it lacks a key, a number is out of range, or a part's name is none.
    """
    there = dict(recipe_meanings.iter_leaves(config))
    # The dot at the end: "optim" is in "optim.lr", and not in "optimizer".
    if missing := [key for key in keys if not any(f"{x}.".startswith(f"{key}.") for x in there)]:
        path = config_flags.get_config_filename(flags.FLAGS["config"])
        raise UserError(f"{path} has no {', '.join(missing)}: it is no recipe for this command")
    for key, name in there.items():
        # Such a name is imported, so a path is refused here, with what a name is.
        if (
            key.endswith(".name")
            and name is not None
            and not re.fullmatch(r"[A-Za-z]\w*(\.\w+)*", str(name))
        ):
            raise UserError(
                f"{key}={name!r}: a name is a file's, as 'transformer', or a module's, "
                "as 'my_models.rwkv'"
            )
    recipe_ranges.check_config(config)


@contextlib.contextmanager
def end_on_error(interrupted: str = "") -> Iterator[None]:
    """Ends the process with a line and an exit code where the block raises a UserError.

    Args:
        interrupted: what Ctrl-C leaves.
    """
    try:
        yield
    except UserError as error:
        lost_processes.end(error.code, f"error: {error}", error)
    except KeyboardInterrupt:
        lost_processes.end(130, "; ".join(filter(None, ["interrupted", interrupted])))
    except Exception as error:
        if not lost_processes.is_multiprocess():
            raise  # Python prints the traceback, and ends with 1
        # At once, so that the others notice: an orderly end would wait for theirs.
        lost_processes.end(1, traceback.format_exc(), error)


def resolve_workdir() -> pathlib.Path:
    """Returns the folder asked for, or one named after the recipe and its preset.

    Raises:
        UserError: it is an address, or its path holds signs of a glob.
    """
    if "://" in (WORKDIR.value or ""):
        raise UserError(
            f"--workdir={WORKDIR.value}: a workdir is a folder; mount the bucket, see "
            "launch/README.md"
        )
    folder = pathlib.Path(WORKDIR.value or pathlib.Path("runs", recipe_name())).absolute()
    find_folder(folder)  # refused before a corpus is prepared
    return folder


def recipe_name() -> str:
    path, _, preset = config_flags.get_config_filename(flags.FLAGS["config"]).partition(":")
    # The preset of a recipe that is named without one is its argument's default, if it has any.
    defaults = () if preset else runpy.run_path(path)["get_config"].__defaults__ or ()
    return "-".join([pathlib.Path(path).stem, *([preset] if preset else defaults[:1])])


@contextlib.contextmanager
def open_workdir(config: ConfigDict, workdir: pathlib.Path) -> Iterator[Callable[[], None]]:
    """Joins the processes of the job and locks the workdir.

    Yields:
        The function that writes the recipe into the workdir.

    Raises:
        UserError: another job is using the workdir, or the run there has another recipe.
    """
    processes.join(HEARTBEAT.value, JOIN_TIMEOUT.value)
    compile_cache.keep(workdir.parent / ".compiled" / recipe_name())
    # One lock for the whole job: on a shared disk its processes would refuse one another.
    lock = lock_workdir(workdir) if jax.process_index() == 0 else contextlib.nullcontext()
    with lock, lost_processes.watch_peers(workdir, HEARTBEAT.value):
        recipe = json.loads(config.to_json_best_effort())
        changed = _find_changes(recipe, workdir)
        # Written only once nothing can be refused: a refused job leaves the old recipe in place.
        yield lambda: _keep_recipe(recipe, workdir, bool(changed))


def _find_changes(recipe: dict, workdir: pathlib.Path) -> list[str]:
    """Lists where the recipe differs from the workdir's; UserError if in what is computed."""
    changed = []
    # A run that never saved has nothing that another recipe could contradict.
    if (workdir / "config.json").exists() and (workdir / "checkpoints").exists():
        changed = diff_configs(read_config(workdir), recipe)
        if (grave := [x for x in changed if not is_free(x)]) and not ACCEPT_CHANGES.value:
            lines = "".join(f"\n  {line}" for line in grave)
            raise UserError(
                f"{workdir} holds a run of another recipe; take another --workdir, or continue "
                f"it under this one with --accept_changes:{lines}"
            )
    return changed


def is_free(difference: str) -> bool:
    """Checks whether a run may resume with such a difference, as "mesh.data: 1 -> 2"."""
    key = difference.partition(":")[0]
    # With the dots a whole section is free by its name, but train.keep does not free train.keeper.
    return any(f"{key}.".startswith(f"{free}.") for free in FREE)


def _keep_recipe(recipe: dict, workdir: pathlib.Path, is_changed: bool) -> None:
    if jax.process_index() == 0:
        if is_changed:  # the results so far were computed under the old recipe
            shutil.copy(workdir / "config.json", find_unused_path(workdir / "config-before.json"))
        write_config(workdir, recipe)
