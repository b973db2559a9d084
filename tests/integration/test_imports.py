"""Imports point one way, between folders and between the rooms of pretrain/."""

import ast
import functools
import pathlib
import re
import sys
from collections.abc import Iterator

ROOT = pathlib.Path(__file__).parents[2]
BELOW: dict[str, set[str]] = {  # each folder, and the folders it may import besides itself
    "modules": set(),
    "configs": set(),
    "pretrain": {"modules"},
    "finetune": {"modules", "pretrain"},
    "launch": set(),
}
OUTSIDE = {  # the packages a folder is limited to, besides Python's own
    "modules": {"flax", "jax", "jaxlib", "optax"},
    "configs": {"ml_collections"},
}
ROOMS = (  # of pretrain/, each of which may import those before it
    "runtime", "distributed", "checkpoint", "formats", "data", "training", "objectives",
    "inference", "diagnostics", "conversion", "aot", "cli",
)  # fmt: skip
FILES = {
    str(path.relative_to(ROOT)): path.read_text()
    for folder in BELOW
    for path in sorted((ROOT / folder).rglob("*.py"))
}


def imported_names(source: str) -> Iterator[str]:
    """The dotted names that a file imports, anywhere in it."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "a relative import hides where it points"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_the_rules_see_the_files_they_are_about():
    assert {"modules/__init__.py", "configs/xlnet.py", "pretrain/main.py"} <= set(FILES)
    assert set(ROOMS) == {path.parent.name for path in (ROOT / "pretrain").glob("*/__init__.py")}


def test_imports_between_folders_point_down():
    wrong = []
    for file, source in FILES.items():
        folder = file.split("/")[0]
        tops = {name.split(".")[0] for name in imported_names(source)}
        ours = tops & {*BELOW, "benchmarks", "tests"}
        wrong += [f"{file} imports {top}" for top in ours - {folder} - BELOW[folder]]
    assert not wrong


def test_imports_between_the_rooms_of_pretrain_point_down():
    wrong = []
    for file, source in FILES.items():
        room = file.split("/")[1]
        if file.split("/")[0] != "pretrain" or room not in ROOMS or "\ndef main(" in source:
            continue
        for name in imported_names(source):
            top, _, rest = name.partition(".")
            target = rest.split(".")[0]
            allowed = ROOMS[: ROOMS.index(room) + 1]
            if top == "pretrain" and target not in allowed:
                wrong.append(f"{file} imports {name}")
    assert not wrong


def test_modules_and_recipes_import_no_other_packages():
    wrong = []
    for file, source in FILES.items():
        folder = file.split("/")[0]
        tops = {name.split(".")[0] for name in imported_names(source)}
        other = tops - {*BELOW} - sys.stdlib_module_names - OUTSIDE.get(folder, tops)
        wrong += [f"{file} imports {top}" for top in other]
    assert not wrong


def test_no_file_but_a_main_knows_the_flags():
    pattern = re.compile(r"^from absl import .*flags|config_flags", re.MULTILINE)
    knows = {file for file, source in FILES.items() if pattern.search(source)}
    others = [file for file in knows if not file.startswith("pretrain/cli/")]
    assert not [file for file in others if "\ndef main(" not in FILES[file]]


def module_of(file: str) -> str:
    """Returns the dotted name of a file."""
    return file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def test_no_chain_of_imports_is_longer_than_seven_files():
    modules = {module_of(file): source for file, source in FILES.items()}

    @functools.cache
    def chain(module: str) -> tuple[str, ...]:
        imported = set[str]()
        for name in imported_names(modules[module]):
            # Of `from a import b`, b if that is a file, else a.
            imported.add(next((x for x in (name, name.rpartition(".")[0]) if x in modules), module))
        return (module, *max(map(chain, imported - {module}), key=len, default=()))

    assert max(map(chain, modules), key=len)[7:] == ()
