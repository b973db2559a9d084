"""The rules of the house that a machine can hold: who imports whom, and that recipes build."""

import ast
import importlib
import math
import pathlib
import re
import sys

import jax
import pytest

import modules
from benchmarks import noise
from pretrain import data, objectives, optim
from pretrain.data.stream import phases
from pretrain.loop import Plan
from pretrain.sharding import AXES

ROOT = pathlib.Path(__file__).parent.parent
BELOW: dict[str, set[str]] = {  # each folder, and the folders it may import besides itself
    "modules": set(),
    "configs": set(),
    "pretrain": {"modules"},
    "finetune": {"modules", "pretrain"},
    "launch": set(),
}
OUTSIDE = {  # the packages a folder is limited to, besides Python's own
    "modules": {"flax", "jax", "optax"},
    "configs": {"ml_collections"},
}
FILES = [path for folder in BELOW for path in sorted((ROOT / folder).rglob("*.py"))]
SHARED = ("__init__", "common")
RECIPES = sorted(p.stem for p in (ROOT / "configs").glob("*.py") if p.stem not in SHARED)


def presets(recipe: str) -> list[str]:
    """Those that the recipe's docstring promises."""
    promised = importlib.import_module(f"configs.{recipe}").get_config.__doc__
    return re.findall(r'"([\w.]+)"', promised)


def name(path) -> str:
    return str(path.relative_to(ROOT))


def imports(path):
    """The packages that a file imports, anywhere in it."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import hides where it points"
            yield str(node.module).split(".")[0]


def test_the_rules_see_the_files_they_are_about():
    assert {"modules/__init__.py", "configs/xlnet.py", "pretrain/main.py"} <= set(map(name, FILES))


@pytest.mark.parametrize("path", FILES, ids=name)
def test_imports_point_down(path):
    folder = path.relative_to(ROOT).parts[0]
    ours = set(imports(path)) & {*BELOW, "benchmarks", "tests"}
    assert ours - {folder} <= BELOW[folder]


@pytest.mark.parametrize("path", [p for p in FILES if name(p).split("/")[0] in OUTSIDE], ids=name)
def test_modules_and_recipes_stay_pure(path):
    folder = name(path).split("/")[0]
    assert set(imports(path)) - {*BELOW} - sys.stdlib_module_names <= OUTSIDE[folder]


@pytest.mark.parametrize("path", [p for p in FILES if p.stat().st_size], ids=name)
def test_every_file_opens_with_a_sentence(path):
    sentence = (ast.get_docstring(ast.parse(path.read_text())) or "").split("\n")[0]
    assert len(sentence) >= 15
    assert path.read_text().startswith('"""')


@pytest.mark.parametrize("path", FILES, ids=name)
def test_no_file_but_a_main_knows_the_flags(path):
    knows = re.search(r"^from absl import .*flags|config_flags", path.read_text(), re.MULTILINE)
    shared = ("pretrain/job.py", "pretrain/commandline.py")
    assert not knows or "\ndef main(" in path.read_text() or name(path) in shared


@pytest.mark.parametrize(
    ("recipe", "preset"), [(recipe, preset) for recipe in RECIPES for preset in presets(recipe)]
)
def test_every_preset_builds(recipe, preset):
    """Each section names arguments that its function has, and the state's shapes can be told."""
    config = importlib.import_module(f"configs.{recipe}").get_config(preset)
    assert set(config.mesh) == set(AXES)
    Plan(**config.train)
    tx, rate = optim.make(**config.optim)
    peak = max(float(rate(config.optim.warmup + i)) for i in (-1, 0))
    assert peak == pytest.approx(config.optim.lr, rel=1e-3)
    corpus = noise.corpus(config.model.V, 50_000)
    train = data.training(
        corpus, 0, config.optim.steps, {**config.batches, "B": 2}, config.get("first")
    )
    rows = phases(train)[0].batch(0)
    backbone = modules.build(**config.model)
    objective = objectives.build(backbone=backbone, special=noise.SPECIAL, **config.objective)
    rngs = dict.fromkeys(("params", "dropout", "corrupt"), jax.random.key(0))
    variables = jax.eval_shape(lambda: objective.init(rngs, rows, train=True))
    jax.eval_shape(tx.init, variables["params"])
    size = sum(math.prod(x.shape) for x in jax.tree.leaves(variables["params"]))
    assert size > config.model.V * config.model.D
