"""Finds what a recipe's keys mean, in the docstrings of what the keys are arguments of."""

import difflib
import functools
import importlib
import inspect
import pkgutil
import re
import shutil
import textwrap
from collections.abc import Iterator
from typing import Any

from ml_collections import ConfigDict

from modules import plugins
from pretrain.runtime import recipe_files, recipe_ranges
from pretrain.runtime.errors import UsageError

STUDIES = "pretrain.diagnostics.studies.study"
# By section, what its keys are arguments of; {name} is the file that the section names.
OWNERS: dict[str, tuple[str, ...]] = {
    "": ("configs.common.base", "configs.finetune.common.base", "configs.gradients.get_config"),
    "mesh": ("pretrain.distributed.sharding.make_mesh",),
    "execution": ("modules.backbones.{name}.Backbone", "pretrain.objectives.{name}.Objective"),
    "corpus": ("pretrain.data.prepare.prepare",),
    "tokens": (
        "pretrain.data.tokenizers.{name}.Tokenizer.settings",
        "pretrain.data.tokenizers.bpe_files.MergeEncoder.settings",
        "pretrain.data.tokenizers.saved.Tokenizer.settings",
    ),
    "batches": (
        "pretrain.data.batches.{name}.BatchLayout",
        "pretrain.data.batches.build",
        "pretrain.data.batches.phases.build_training",
        "finetune.several.parts.build_layouts",
    ),
    "model": ("modules.backbones.{name}.Backbone",),
    "head": ("modules.heads.language_model.LanguageModelHead",),
    "objective": ("pretrain.objectives.{name}.Objective",),
    "optim": ("pretrain.training.schedules.Schedule", "pretrain.training.optimizer.Optimizer"),
    "train": ("pretrain.training.train_config.TrainConfig",),
    "hooks": ("{name}.Hook",),
    "data": (
        "finetune.datasets.{name}.read",
        "finetune.datasets.table.read",  # which others hand their fields on to
        "finetune.datasets.corpus.find_source",
        "finetune.several.parts.part_data_section",
        "finetune.inputs.splits.draw_splits",
    ),
    "vectors": ("finetune.inputs.word_vectors.build_table",),
    "mixture": ("finetune.several.mixture.Mixture", "finetune.several.parts.list_sections"),
    "task": ("finetune.tasks.{name}.TaskData", "finetune.tasks.build_task"),
    "task.encoder": ("finetune.encoders.{name}.Encoder",),
    "task.encoder.characters": ("modules.layers.char_words.CharWords",),
    "task.head": (
        "finetune.tasks.{name}.TaskData.build_task",
        "modules.heads.classifier.Classifier",
        "modules.heads.sentence_vector.SentenceVector",
    ),
    "task.loss": ("finetune.tasks.{name}.TaskData.build_task", "finetune.tasks.{name}.Task"),
    "cell": ("modules.layers.rnn.Recurrent",),
    "decay": ("pretrain.diagnostics.gradient_decay.measure_cell", f"{STUDIES}_decay"),
    "sweep": (f"{STUDIES}_sweep",),
    "deep": ("pretrain.diagnostics.deep_stack.measure_layers", f"{STUDIES}_deep"),
    "exploding": ("pretrain.diagnostics.adding_problem.train", f"{STUDIES}_exploding"),
    "adding": ("pretrain.diagnostics.adding_problem.train", f"{STUDIES}_adding"),
    "runs": ("pretrain.diagnostics.run_gradients.study_run",),
}
# Beside those of `recipe_ranges`: sections by another name.
ALIASES = (
    (r"^data\.(train|dev|test)\.", "data."),
    (r"^hooks\.[^.]+\.", "hooks."),
    (r"^train\.means\..*", "train.means"),
)
NAMES = ("name", "format")  # keys by which a section names a file
HEADINGS = re.compile(r"(Args|Attributes|Keys):")
ENTRY = re.compile(r"    (\w+(?:, \w+)*): (.*)")
REFERENCE = re.compile(r"(see|of) `([\w.]+)`")  # an entry that leaves the meaning to another


def explain(config: ConfigDict, section: str = "") -> Iterator[str]:
    """Yields a line for every key of a recipe, or of a section: its value, and its meaning.

    Args:
        section: a dotted name, as "optim"; "": all.

    Raises:
        UsageError: the recipe has no such section.
    """
    keys = {
        key: value for key, value in recipe_files.iter_leaves(config) if _is_within(key, section)
    }
    if not keys:
        names = [*config, *(key for key, _ in recipe_files.iter_leaves(config))]
        meant = difflib.get_close_matches(section, names, 1)
        hint = f"did you mean {meant[0]}? " if meant else ""
        raise UsageError(f"--explain={section}: {hint}the recipe has {', '.join(config)}")
    # An empty ConfigDict would be printed over two lines.
    shown = {key: {} if x == ConfigDict() else x for key, x in keys.items()}
    values = {key: f"{key}={x!r}" for key, x in shown.items()}
    indent = " " * (min(max(map(len, values.values())), 34) + 2)
    width = max(shutil.get_terminal_size((100, 24)).columns, len(indent) + 40)
    for key, value in values.items():
        meaning = find_meaning(config, key) or "(of a module of your own, without a docstring)"
        lines = textwrap.wrap(meaning, width - len(indent)) or [""]
        first = [value.ljust(len(indent)) + lines.pop(0)] if len(value) < len(indent) else [value]
        yield "\n".join([*first, *(indent + line for line in lines)])


def find_meaning(config: ConfigDict, key: str) -> str:
    """Returns what a key of a recipe means; "": nothing says."""
    section, _, field = name_key(key).rpartition(".")
    templates = OWNERS.get(section, ())
    if field in NAMES and (template := next((x for x in templates if "{name}" in x), "")):
        return _describe_name(template)
    names = list_names(config, key, section)
    value = functools.reduce(lambda values, name: values[name], key.split("."), config)
    paths = [path for template in templates for path in _fill(template, names)]
    if value is None or not names:  # nothing is set, so that it may be of any file
        paths += [path for template in templates for path in _fill(template, [])]
    return next(filter(None, (read_entries(path).get(field, "") for path in paths)), "")


def name_key(key: str) -> str:
    """Returns the name that `OWNERS` has the section of a key by."""
    named = key
    for pattern, name in ALIASES:
        named = re.sub(pattern, name, named)
    named = recipe_ranges.name_section(named)
    return key if named.startswith("study.") else named  # studies differ in what a key means


def list_names(config: ConfigDict, key: str, section: str) -> list[str]:
    """Lists the names that sections around a key have, the innermost first."""
    parts = key.split(".")[:-1]
    names = []
    for around in (*(parts[:n] for n in range(len(parts), 0, -1)), section.split(".")):
        # As a plain dict: a ConfigDict's `get` looks for similar names before it gives up.
        fields = dict(config.items())
        for part in around:
            fields = dict((fields.get(part) or {}).items())
        names += [value for name in NAMES if (value := fields.get(name))]
    if section == "execution":
        names += [config[x].name for x in ("model", "objective") if "name" in config.get(x, {})]
    return names


def _fill(template: str, names: list[str]) -> list[str]:
    """Lists the paths of a template by these names; by the names of all its files for none."""
    folder, brace, rest = template.partition("{name}")
    if not brace:
        return [template]
    files = pkgutil.iter_modules(importlib.import_module(folder[:-1]).__path__) if folder else ()
    names = names or [file.name for file in files]
    # A name with a dot is a module of the reader's own.
    return [(name if "." in name else f"{folder}{name}") + rest for name in names]


@functools.cache
def read_entries(path: str) -> dict[str, str]:
    """Reads what the docstrings of a class or a function say of its arguments.

    Args:
        path: dotted, of a method as "package.module.Class.method".

    Returns:
        Meanings by argument; {}: there is no such object.
    """
    owner = find_object(path)
    # The base's docstring explains inherited fields.
    kinds = owner.__mro__ if isinstance(owner, type) else [owner]
    entries: dict[str, str] = {}
    for kind in kinds:
        init = vars(kind).get("__init__") if isinstance(kind, type) else None
        docstrings = kind.__doc__ or "", getattr(init, "__doc__", "") or ""
        for name, text in {k: x for y in docstrings for k, x in parse_entries(y).items()}.items():
            if match := REFERENCE.match(text):
                text = read_entries(f"{kind.__module__}.{match[2]}").get(name, text)
            entries.setdefault(name, text)
    return entries


def find_object(path: str) -> Any:
    """Imports the object of a dotted path; None: there is none."""
    parts = path.split(".")
    for count in range(len(parts) - 1, 0, -1):
        try:
            value: Any = importlib.import_module(".".join(parts[:count]))
        except ModuleNotFoundError:
            continue
        for name in parts[count:]:
            value = getattr(value, name, None)
        return value
    return None


def parse_entries(docstring: str) -> dict[str, str]:
    """Parses the Args, Attributes or Keys of a docstring: {"b1": "beta of the first moment."}."""
    entries: dict[str, list[str]] = {}
    text: list[str] | None = None  # of the entry that goes on; None: of no such heading
    is_inside = False
    for line in inspect.cleandoc(docstring).splitlines():
        if not line.startswith(" "):
            is_inside = bool(HEADINGS.fullmatch(line)) or (is_inside and not line)
            text = None
        elif is_inside and (match := ENTRY.fullmatch(line)):
            text = entries[match[1]] = [match[2]]
        elif text is not None:
            text.append(line.strip())
    parsed: dict[str, str] = {}
    for names, lines in entries.items():
        parsed |= _share_out(names.split(", "), " ".join(lines))
    return parsed


def _share_out(names: list[str], text: str) -> dict[str, str]:
    """Gives each of several names its part of an entry, "D, H: width, heads.", or all of it."""
    parts = text.partition(";")[0].rstrip(".").split(", ")
    is_list = len(parts) == len(names) > 1
    return dict(zip(names, parts if is_list else [text] * len(names), strict=True))


def _describe_name(template: str) -> str:
    folder, _, content = template.partition("{name}.")
    if not folder:
        return "a module, as my_package.my_file, of your own or of pretrain.training."
    known = ", ".join(plugins.names(folder[:-1], content.partition(".")[0]))
    return f"{known}; or a module of your own, as my_package.my_file."


def _is_within(key: str, section: str) -> bool:
    return not section or f"{key}.".startswith(f"{section}.")
