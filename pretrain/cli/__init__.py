"""Runs every command: flags, exit codes, errors as one line, the workdir and its lock."""

import contextlib
import functools
import pathlib
import runpy
import shlex
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator

from absl import app, flags, logging
from ml_collections import config_flags

from pretrain.checkpoint.paths import find_workdir
from pretrain.cli import arguments
from pretrain.distributed import lost_processes
from pretrain.runtime import malloc, recipe_meanings
from pretrain.runtime.addresses import remove_credentials
from pretrain.runtime.errors import UserError
from pretrain.runtime.job_options import JobOptions
from pretrain.runtime.recipe_check import check_recipe

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
HEARTBEAT = flags.DEFINE_integer(
    "heartbeat", 60, "Seconds without a sign of life after which a process counts as lost.", 2
)
JOIN_TIMEOUT = flags.DEFINE_integer(
    "join_timeout", 300, "Seconds to wait until all processes of the run have joined.", 1
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
                arguments.end_with_reader()
                print("\n".join(recipe_meanings.explain(CONFIG.value, EXPLAIN.value)))
                return 0
            path = config_flags.get_config_filename(flags.FLAGS["config"])
            check_recipe(CONFIG.value, recipe, path)
            return main(CONFIG.value, argv[1:]) if has_words else main(CONFIG.value)

    malloc.keep_memory()  # before JAX starts its threads
    if "workdir" in required:
        flags.FLAGS["workdir"].help = "The run's folder."  # which no recipe names
    flags.mark_flags_as_required([*required, *(["config"] if recipe is not None else [])])
    app.run(run_main, flags_parser=functools.partial(arguments.read, has_words=has_words))


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
        UserError: see `find_workdir`.
    """
    return find_workdir(WORKDIR.value or pathlib.Path("runs", recipe_name()))


def recipe_name() -> str:
    path, _, preset = config_flags.get_config_filename(flags.FLAGS["config"]).partition(":")
    # The preset of a recipe that is named without one is its argument's default, if it has any.
    defaults = () if preset else runpy.run_path(path)["get_config"].__defaults__ or ()
    return "-".join([pathlib.Path(path).stem, *([preset] if preset else defaults[:1])])


def read_options() -> JobOptions:
    """Returns what the flags say of a job beside its recipe."""
    return JobOptions(
        name=recipe_name(),
        command=remove_credentials(shlex.join(["python", *sys.orig_argv[1:]])),
        accept_changes=ACCEPT_CHANGES.value,
        heartbeat=HEARTBEAT.value,
        join_timeout=JOIN_TIMEOUT.value,
    )
