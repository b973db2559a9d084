"""Runs the shell and Python blocks of a page of Markdown, in an empty folder, with tiny settings.

A fence says what becomes of its block: ```bash and ```python are run, in the page's order; with
`no-run` behind it a block is left out (it needs a network, a pod or a GPU).  Blocks of Python share
their names, as the cells of a notebook do; each shell block is a shell of its own.
"""

import contextlib
import os
import pathlib
import stat
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

import quartet
from pretrain.runtime import recipe_files
from tests.support import markdown

ROOT = pathlib.Path(__file__).parents[2]
SETTINGS = tomllib.loads((ROOT / "tests" / "fixtures" / "pages.toml").read_text())
RUN = ("bash", "python")
# In the place of `python`, on the path of the page: adds what the settings have for its command.
PYTHON = """#!/bin/bash
more=()
if [ "$1" = -m ]; then
    name=TINY_${{2//./_}}
    eval "more=(${{!name}})"
fi
exec {python} "$@" "${{more[@]}}"
"""


def list_runs(page: pathlib.Path) -> list[markdown.Block]:
    """Lists the blocks of a page that are run."""
    blocks = markdown.list_blocks(page.read_text())
    return [x for x in blocks if x.language in RUN and "no-run" not in x.words]


def count_left_out(page: pathlib.Path) -> int:
    """Counts the blocks of a page that its fences leave out."""
    return sum("no-run" in block.words for block in markdown.list_blocks(page.read_text()))


def find_settings(page: pathlib.Path) -> dict[str, Any]:
    """Finds the settings of a page: those of all, and over them its own."""
    own = SETTINGS.get(page.stem, {})
    merged = {key: {**SETTINGS["all"][key], **own.get(key, {})} for key in ("commands", "train")}
    return {**merged, "left_out": own.get("left_out", 0)}


def run_page(page: pathlib.Path, folder: pathlib.Path, cache: pathlib.Path) -> None:
    """Runs the blocks of a page, and fails with the line of the first that does.

    Args:
        folder: where they run, empty.
        cache: of corpora, which pages share.
    """
    settings = find_settings(page)
    environment = make_environment(settings["commands"], folder, cache)
    names: dict[str, Any] = {"__name__": "__main__"}
    with contextlib.chdir(folder), tiny_training({**settings["train"], "corpus.cache": str(cache)}):
        for block in list_runs(page):
            place = f"{page.name}, line {block.line}"
            if block.language == "bash":
                run_shell(block.code, folder, environment, place)
            else:
                # As many empty lines before it as the page has: a traceback names the page's line.
                exec(compile("\n" * block.line + block.code, str(page), "exec"), names)
    # Another page has modules of the same names.
    own = {path.stem for path in folder.iterdir()}
    for name in [name for name in sys.modules if name.partition(".")[0] in own]:
        del sys.modules[name]


def make_environment(
    commands: Mapping[str, str], folder: pathlib.Path, cache: pathlib.Path
) -> dict[str, str]:
    """Makes the environment of shells, in which `python` adds tiny settings to commands."""
    bin_folder = folder.parent / f"{folder.name}-bin"
    bin_folder.mkdir()
    python = bin_folder / "python"
    python.write_text(PYTHON.format(python=sys.executable))
    python.chmod(python.stat().st_mode | stat.S_IXUSR)
    tiny = {f"TINY_{name.replace('.', '_')}": words for name, words in commands.items()}
    return {
        **os.environ,
        **tiny,
        "CACHE": str(cache),
        "PATH": f"{bin_folder}:{os.environ['PATH']}",
        "PYTHONPATH": f"{ROOT}:{folder}",
        # The machine as a reader's: one device.
        "XLA_FLAGS": os.environ["XLA_FLAGS"].replace("device_count=8", "device_count=1"),
    }


def run_shell(code: str, folder: pathlib.Path, environment: dict[str, str], place: str) -> None:
    command = ["bash", "-euo", "pipefail", "-c", code]
    options: dict[str, Any] = dict(cwd=folder, env=environment, text=True, stdin=subprocess.DEVNULL)
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **options)
    if done.returncode:
        pytest.fail(f"{place}: exit code {done.returncode}\n{code}\n{done.stdout[-3000:]}")


@contextlib.contextmanager
def tiny_training(changes: Mapping[str, Any]) -> Iterator[None]:
    """Has `quartet.train` change what the recipe has of these, as commands get more words."""
    train = quartet.train

    def train_tiny(recipe: Any, workdir: Any, own: Any = None, **options: Any) -> Any:
        config = quartet.load_recipe(recipe, own) if isinstance(recipe, str) else recipe
        leaves = dict(recipe_files.iter_leaves(config))
        # A warm-up is steps in one recipe, and a share of them in another.
        fit = {key: x for key, x in changes.items() if type(leaves.get(key)) is type(x)}
        config.update_from_flattened_dict(fit)
        return train(config, workdir, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(quartet, "train", train_tiny, raising=False)
        patch.syspath_prepend(os.getcwd())
        yield
