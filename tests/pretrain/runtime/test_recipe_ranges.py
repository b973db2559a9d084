"""Every number of every recipe has a range, and every key a meaning; no recipe's own is refused."""

import dataclasses
import importlib
import inspect
import math
import pathlib
import re

import pytest

from finetune import encoders
from modules import plugins
from modules.heads.classifier import Classifier
from modules.heads.language_model import LanguageModelHead
from pretrain.distributed import sharding
from pretrain.runtime import recipe_files, recipe_meanings, recipe_ranges
from pretrain.runtime.errors import UserError
from pretrain.training import optimizer, schedules
from pretrain.training.train_config import TrainConfig
from tests.support import tiny_runs
from tests.support.presets import presets

CONFIGS = pathlib.Path(__file__).parents[3] / "configs"
RECIPES = sorted(
    ".".join(("configs", *path.relative_to(CONFIGS).with_suffix("").parts))
    for path in CONFIGS.rglob("*.py")
    if path.stem not in ("__init__", "common")
)
HOOKS = [
    "hooks.nt_asgd.n",
    *(f"hooks.anneal.{x}" for x in ("patience", "factor", "cuts", "length")),
]
ANY = {  # any number goes, and why
    "data.texts": "columns, counted from 0, or from the last as -1",
    "data.label": "a column",
    "corpus.data.texts": "likewise",
    "corpus.data.label": "likewise",
    **dict.fromkeys(HOOKS, "of a hook, which checks its own fields"),
}
FOLLOW = {  # what no recipe says, since it follows from the data or the rest of it
    "batches": {"seed"},
    "objective": {"special"},
}


CASES = [(recipe, preset) for recipe in RECIPES for preset in presets(recipe)]


def config_of(recipe: str, preset: str = ""):
    return importlib.import_module(recipe).get_config(*filter(None, [preset]))


@pytest.mark.parametrize(("recipe", "preset"), CASES)
def test_every_number_of_every_recipe_has_a_range_and_is_in_it(recipe, preset):
    config = config_of(recipe, preset)
    numbers = {key for key, _ in recipe_ranges.iter_numbers(config)}
    unknown = {key for key in numbers if not recipe_ranges.find_range(key)}
    assert {recipe_ranges.name_section(key) for key in unknown} <= ANY.keys()
    recipe_ranges.check_config(config)


def test_every_key_of_every_recipe_has_a_meaning():
    configs = [config_of(*case) for case in CASES]
    # Of presets with the same keys one is enough.
    distinct = {frozenset(dict(recipe_files.iter_leaves(x))): x for x in configs}
    missing = {
        recipe_meanings.name_key(key)
        for keys, config in distinct.items()
        for key in keys
        if not recipe_meanings.find_meaning(config, key)
    }
    assert not missing


@pytest.mark.parametrize(
    ("recipe", "preset"),
    [
        *(("tests.support.tiny_runs", name) for name in tiny_runs.RECIPES),
        *(("benchmarks.recipes", name) for name in presets("benchmarks.recipes")),
    ],
)
def test_the_small_recipes_are_in_range(recipe, preset):
    recipe_ranges.check_config(config_of(recipe, preset))


def fields(function) -> set[str]:
    """What it takes that is a number, or several."""
    if dataclasses.is_dataclass(function):
        found = {each.name: str(each.type) for each in dataclasses.fields(function)}
    else:
        parameters = inspect.signature(function).parameters.items()
        found = {name: str(each.annotation) for name, each in parameters}
    return {name for name, kind in found.items() if re.search(r"int\b|float", kind)}


BACKBONES = ["transformer", "two_stream", "elmo", "awd_lstm"]
LAYOUTS = ["lanes", "windows", "pairs", "bidirectional", "bptt"]
TOKENIZERS = ["bpe", "byte_bpe", "sentencepiece", "wordpiece", "words"]


def owners():
    """(section, function) of all whose keyword arguments are a recipe's."""
    sections = {
        "model": ("modules.backbones", "Backbone", BACKBONES),
        "objective": ("pretrain.objectives", "Objective", ["clm", "mlm", "plm", "bilm"]),
        "batches": ("pretrain.data.batches", "BatchLayout", LAYOUTS),
        "tokens": ("pretrain.data.tokenizers", "Tokenizer", TOKENIZERS),
    }
    for section, (folder, owner, names) in sections.items():
        for name in names:
            found = getattr(importlib.import_module(f"{folder}.{name}"), owner or name.title())
            yield section, found.settings if section == "tokens" else found
    for name in ("classify", "regress", "choice", "rank", "tag", "span"):
        kind = importlib.import_module(f"finetune.tasks.{name}")
        yield "task", kind.TaskData
    for name in plugins.names(encoders.FOLDER, "Encoder"):
        yield "task.encoder", importlib.import_module(f"{encoders.FOLDER}.{name}").Encoder
    yield from (("task.head", Classifier), ("head", LanguageModelHead))
    yield from (("optim", schedules.Schedule), ("optim", optimizer.Optimizer))
    yield from (("train", TrainConfig), ("mesh", sharding.make_mesh))


def test_every_number_that_a_section_takes_has_a_range():
    missing = {
        f"{section}.{name}"
        for section, function in owners()
        for name in fields(function) - FOLLOW.get(section, set())
        if not any(recipe_ranges.find_range(f"{x}.{name}") for x in (section, "execution"))
    }
    assert not missing


TOO = {  # what was trained with, or died of, without a line
    "optim.lr": -0.001,
    "optim.clip": math.nan,
    "optim.b1": 1.0,
    "optim.steps": 0,
    "train.average": 2.0,
    "train.keep": 0,
    "model.dropout": 1.5,
    "model.D": -8,
    "mesh.fsdp": 0,
    "seed": -1,
    "optim.eps": math.inf,
    "batches.B": 0,
    "evals.held_out.B": -8,
    "corpus.tokens.V": 0,
    "corpus.held_out": 1.0,
    "optim.warmup": -5,
}
TOO_FINE_TUNING = {
    "epochs": 0.0,
    "num_seeds": 0,
    "max_train_examples": -1,
    "task.head.dropout": 1.0,
    "task.language_model": -0.5,
    "task.encoder.layers": 0,
    "batches.eval_B": 0,
    "optim.steps": -3,
    "train.stop_after": -1,
    "optim.warmup": math.nan,
}


def check_with(recipe: str, changes: dict) -> None:
    config = config_of(recipe)
    config.update_from_flattened_dict(changes)
    recipe_ranges.check_config(config)


@pytest.mark.parametrize(
    ("recipe", "key", "value"),
    [
        *(("configs.gpt", key, value) for key, value in TOO.items()),
        *(("configs.finetune.sst2", key, value) for key, value in TOO_FINE_TUNING.items()),
        ("configs.finetune.sst2", "epochs", -1.0),
        ("configs.finetune.sst2", "epochs", math.nan),
        ("configs.gpt", "optim.steps", -3),
        ("configs.gpt", "mesh.data", -2),
        ("configs.bert", "first_phase.L", 0),
        ("configs.elmo", "model.filters", ((1, 32), (0, 32))),
    ],
)
def test_an_absurd_number_is_refused_by_its_name(recipe, key, value):
    with pytest.raises(UserError, match=rf"^{re.escape(key)}=\S+ is to be "):
        check_with(recipe, {key: value})


def test_all_wrong_numbers_are_named_at_once():
    with pytest.raises(UserError) as refused:
        check_with("configs.gpt", {"optim.lr": -1.0, "train.parts": 0, "optim.b2": 1.0})
    for line in (
        "optim.lr=-1.0 is to be at least 0",
        "train.parts=0 is to be a whole number, at least 1",
        "optim.b2=1.0 is to be at least 0 and below 1",
    ):
        assert line in str(refused.value).split("; ")


@pytest.mark.parametrize(
    ("recipe", "changes"),
    [
        ("configs.gpt", {"optim.lr": 1e6, "train.save_every": 0, "optim.clip": 0.0}),
        ("configs.gpt", {"mesh.data": 1, "mesh.fsdp": -1, "optim.lr": 0.0}),
        ("configs.finetune.sst2", {"optim.steps": 0, "optim.warmup": 0.1}),
    ],
)
def test_what_turns_something_off_is_in_range(recipe, changes):
    check_with(recipe, changes)


def test_a_number_that_no_table_knows_is_to_be_finite():
    config = config_of("configs.gpt")
    config.model.temperature = 7.0
    recipe_ranges.check_config(config)
    config.model.temperature = math.inf
    with pytest.raises(UserError, match=r"model\.temperature=inf is to be a finite number"):
        recipe_ranges.check_config(config)


def test_half_a_row_is_refused_in_a_recipe_too():
    config = config_of("configs.gpt").to_dict()
    config["batches"]["B"] = 16.0
    with pytest.raises(UserError, match=r"batches\.B=16\.0 is to be a whole number"):
        recipe_ranges.check_config(config)


def test_factors_of_rates_by_pattern_are_looked_at():
    config = config_of("configs.gpt").to_dict()
    config["optim"]["rates"] = {r"backbone/layers\.": -0.5}
    with pytest.raises(UserError, match="rates"):
        recipe_ranges.check_config(config)
