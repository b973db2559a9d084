"""Prints the runs of a recipe's sweep, a command on each line:

    python -m launch.sweep --config=configs/bert.py:mini -- python -m pretrain.main | sh
    python -m launch.sweep --config=configs/bert.py --prefix='launch/slurm.sh --name {run} --' \\
        -- python -m pretrain.main --config.train.save_every=500 | sh
    python -m launch.sweep --config=configs/bert.py -- python -m pretrain.main \\
        | launch/slurm.sh --name bert --gpus 1 --array -

A recipe defines its sweep in a function beside its `get_config`, as values by dotted name:

    def get_sweep():
        return [{"optim.lr": lr, "seed": seed} for lr in (1e-4, 3e-4) for seed in range(3)]

or the command does, as values to combine, with 0:5 for 0 to 4:

    python -m launch.sweep --config=configs/bert.py --set optim.lr=1e-4,3e-4 --set seed=0:5 -- ...

Each run has its own workdir, runs/<recipe>-<preset>-lr=0.0001-seed=0.  Flags after the program are
shared by all runs.  `python -m finetune.results runs/*` compares them afterwards.
"""

import argparse
import difflib
import importlib.util
import itertools
import pathlib
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any

from launch.command_line import Parser

Point = dict[str, Any]  # values by dotted name
ROOT = pathlib.Path(__file__).parents[1]
FOLDERS = (ROOT / "configs", ROOT / "configs/finetune")  # of the recipes
WORDS = {bool: "true or false", int: "a whole number", float: "a number"}  # types of values
BOOLS = ("true", "false", "t", "f", "1", "0")
FINETUNE = re.compile(r"finetune(\.\w+)?|(.*/)?finetune/\w+\.py")  # its recipes come first
PARTS = re.compile(r",(?![^(\[]*[)\]])")  # commas that are in no brackets


def main() -> None:
    """Prints the commands; a mistake ends the process with a line."""
    parser = Parser("launch.sweep", __doc__)
    parser.add_argument("--config", required=True, help="the recipe: path.py:preset, or bert:mini")
    parser.add_argument("--runs", default="runs", help="the folder of the workdirs [runs]")
    parser.add_argument(
        "--prefix", default="", help="what starts each; {run}: its name, {n}: its number"
    )
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=A,B", help="values, or a range 0:5"
    )
    parser.add_argument("program", nargs=argparse.REMAINDER, help="-- and the program")
    args = parser.parse_args()
    # REMAINDER leaves the "--" in.
    program = args.program[1:] if args.program[:1] == ["--"] else args.program
    try:
        lines = commands(args.config, program, args.runs, args.prefix, args.set)
    except ValueError as error:
        parser.error(str(error))
    print(*lines, sep="\n")


def commands(
    config: str,
    program: list[str],
    runs: str = "runs",
    prefix: str = "",
    grid: Sequence[str] = (),
) -> list[str]:
    """Returns a command for each point of the recipe's sweep, quoted for a shell.

    Args:
        config: the recipe, as "path.py", "path.py:preset", or one of ours as "bert:mini".
        program: words of the command, and flags that all runs share.
        runs: the folder of the workdirs.
        prefix: shell words before each command, with {run} for the run's name and {n} for its
            number, from 0.
        grid: "key=a,b" or "key=0:5" each, in the place of the recipe's sweep.

    Raises:
        ValueError: there is no such recipe, it has no sweep, a name is none of its keys, as that of
            a flag that all runs share, a value is no number where the recipe has one, or two points
            would share a workdir; the message says which.
    """
    if not program:
        raise ValueError("name a program to run, after --")
    path, recipe, presets = _load_recipe(config, program, needs_sweep=not grid)
    points = combine(grid) if grid else [dict(point) for point in recipe.get_sweep()]
    _check_keys(recipe.get_config(*presets), points, path, program)
    names = _name_runs("-".join([pathlib.Path(path).stem, *presets]), points)
    # The recipe has to be named before its values are.
    values = next((i for i, x in enumerate(program) if x.startswith("--config.")), len(program))
    first, shared = program[:values], program[values:]
    lines = []
    for n, (name, point) in enumerate(zip(names, points, strict=True)):
        # The point's values come last: the last flag of a name counts.
        words = [*first, f"--config={config}", f"--workdir={runs}/{name}", *shared, *flags(point)]
        before = prefix.replace("{run}", shlex.quote(name)).replace("{n}", str(n))
        lines.append(f"{before} {shlex.join(words)}".lstrip())
    return lines


def check_program(config: str, program: Sequence[str]) -> None:
    """Looks for the keys that a program's words change in the recipe that they name.

    Raises:
        ValueError: there is no such recipe, or a key is none of its.
    """
    path, recipe, presets = _load_recipe(config, program, needs_sweep=False)
    _check_program_keys(recipe.get_config(*presets), path, program)


def flags(point: Point) -> list[str]:
    """Returns the flags that set a recipe's values to those of `point`."""
    return [f"--config.{name}={value}" for name, value in point.items()]


def combine(grid: Sequence[str]) -> list[Point]:
    """Returns a point for each combination of the values that "key=a,b" and "key=0:5" name.

    Raises:
        ValueError: one names no key, no value, or a key that another names.
    """
    values: dict[str, list[str]] = {}
    for word in grid:
        key, equals, text = word.partition("=")
        if not (key and equals and text) or key in values:
            raise ValueError(f"--set {word}: name each key once, as optim.lr=1e-4,3e-4 or seed=0:5")
        span = re.fullmatch(r"(\d+):(\d+)", text)
        # Not at the commas within brackets, as of a tuple.
        values[key] = list(map(str, range(*map(int, span.groups())))) if span else PARTS.split(text)
    if empty := [key for key, choices in values.items() if not (choices and all(choices))]:
        raise ValueError(f"--set {empty[0]}: a value is empty")
    return [dict(zip(values, point, strict=True)) for point in itertools.product(*values.values())]


def _load_recipe(
    config: str, program: Sequence[str], needs_sweep: bool
) -> tuple[str, Any, list[str]]:
    """Loads a recipe: its path as it was named, its module, and its preset if it has any."""
    # A path, or the name of one of ours, as "bert" and "finetune/table"; where two have one name,
    # the program says whose, as `pretrain.runtime.recipe_files.find` does.
    path, _, preset = config.partition(":")
    folders = FOLDERS[::-1] if any(map(FINETUNE.fullmatch, program)) else FOLDERS
    files = [pathlib.Path(path), *(folder / f"{path}.py" for folder in folders)]
    file = next((file for file in files if file.is_file()), None)
    if file is None:
        names = [file.stem for folder in folders for file in folder.glob("*.py")]
        meant = _list_meant(path.removesuffix(".py"), names)
        raise ValueError(f"there is no recipe {path}{meant}")
    recipe = _load_module(file)
    if needs_sweep and not hasattr(recipe, "get_sweep"):
        raise ValueError(f"{path} has no get_sweep(): name the values, as --set optim.lr=1e-4,3e-4")
    # The preset of a recipe that is named without one is its argument's default, if it has any.
    presets = [preset] if preset else list(recipe.get_config.__defaults__ or ())[:1]
    return path, recipe, presets


def _load_module(file: pathlib.Path) -> Any:
    spec = importlib.util.spec_from_file_location("swept", file)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@cache
def _load_usual_names() -> Any:
    """Loads the names of other libraries that stand for keys, a table that imports nothing."""
    return _load_module(ROOT / "pretrain/runtime/usual_names.py")


def _check_keys(config: Any, points: list[Point], path: str, program: Sequence[str]) -> None:
    if not points:
        raise ValueError(f"{path}: get_sweep() returns no points")
    for name in dict.fromkeys(name for point in points for name in point):
        section = _find_value(config, name, f"{path}: the sweep names {name}")
        for point in points:
            if isinstance(text := point.get(name), str):
                _check_value(name, text, type(section))
    _check_program_keys(config, path, program)


def _check_program_keys(config: Any, path: str, program: Sequence[str]) -> None:
    for word in program:  # each of the runs would refuse it
        if match := re.match(r"--(?:no)?config\.([^=]+)", word):
            _find_value(config, match[1], f"{path}: {word} names {match[1]}")


def _find_value(config: Any, name: str, what: str) -> Any:
    is_known = set(_iter_keys(config)).__contains__
    section, name = config, _load_usual_names().translate(name, is_known) or name
    for part in name.split("."):
        # A recipe is a ConfigDict, which this module does not import.
        if not hasattr(section, "keys"):
            raise ValueError(f"{what}, which is not in the recipe: above it is a value")
        if part not in section:
            meant = _list_meant(name, list(_iter_keys(config))) or f"; there are {_join(section)}"
            raise ValueError(f"{what}, which is not in the recipe{meant}")
        section = section[part]
    return section


def _join(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))


def _iter_keys(section: Any, above: str = "") -> Iterator[str]:
    for name in section:
        value = section[name]
        if hasattr(value, "keys"):
            yield from _iter_keys(value, f"{above}{name}.")
        else:
            yield f"{above}{name}"


def _list_meant(name: str, names: Sequence[str]) -> str:
    # Keys of the same last part, as for "lr", and else those that are written alike in this part.
    last = name.rpartition(".")[2]
    alike = [x for x in names if x.rpartition(".")[2] == last]
    alike = (
        alike[:3]
        or [
            x
            for x in difflib.get_close_matches(name, names, 3)
            if difflib.get_close_matches(last, [x.rpartition(".")[2]])
        ][:1]
    )
    return f"; did you mean {' or '.join(alike)}?" if alike else ""


def _check_value(name: str, text: str, kind: type) -> None:
    # What a program would refuse, once for each of its runs.
    if kind not in WORDS or text.startswith("$"):
        return
    try:
        is_right = text.lower() in BOOLS if kind is bool else kind(text) is not None
    except ValueError:
        is_right = False
    if not is_right:
        first, dash, last = text.partition("-")
        is_range = kind is int and dash and first.isdecimal() and last.isdecimal()
        hint = f"; a range is {first}:{int(last) + 1}" if is_range else ""
        raise ValueError(f"--set {name}={text}: {name} is {WORDS[kind]}{hint}")


def _name_runs(base: str, points: list[Point]) -> list[str]:
    # By the last part of its keys, or by all of a key where two end alike.
    keys = list(dict.fromkeys(key for point in points for key in point))
    last = {key: key.rpartition(".")[2] for key in keys}
    shared = {tail for tail, count in Counter(last.values()).items() if count > 1}
    short = {key: key if tail in shared else tail for key, tail in last.items()}
    names = [
        "-".join([base, *(f"{short[key]}={_file_word(value)}" for key, value in point.items())])
        for point in points
    ]
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise ValueError(f"two points of the sweep would share the workdir {twice[0]}")
    return names


def _file_word(value: Any) -> str:
    return "".join(c if c.isalnum() or c in "._+-" else "_" for c in str(value))


if __name__ == "__main__":
    main()
