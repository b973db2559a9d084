"""The parts of a job, one for each of its tasks: examples, both halves, and layouts of batches.

A recipe of one task has sections `data` and `task`; its part is called "".  One of several has

    tasks = dict(sst1=dict(data=..., task=..., weight=1.0, batches=dict(L=64)), subj=...)

in which `weight`, of the loss, and `batches`, what differs from the recipe's, may be left out.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from flax import linen as nn
from ml_collections import ConfigDict

from finetune import datasets, tasks
from finetune.inputs.batches import Examples
from finetune.inputs.labels import UNSEEN
from finetune.inputs.rows import check_padding
from finetune.inputs.splits import draw_splits
from pretrain.data.batches.shuffling import shuffle_array
from pretrain.runtime.errors import UserError
from pretrain.runtime.sections import call_section

MISSING = (FileNotFoundError, NotADirectoryError, IsADirectoryError)
SPLITS = ("train", "dev", "test")
DRAWS = ("folds", "fold", "dev_share", "split_seed")  # fields of `data` that are of `draw_splits`


class Section(NamedTuple):
    """Holds what a recipe says of one task.

    Attributes:
        data, task: its sections; `data` is a ConfigDict still.
        weight: of its loss.
        batches: the recipe's, with what differs for this task.
    """

    data: ConfigDict
    task: dict[str, Any]
    weight: float
    batches: dict[str, Any]


class Part(NamedTuple):
    """Holds one task of a job.

    Attributes:
        examples: by split, as read.
        section: the recipe's `task`.
        data, task: the halves of `finetune.tasks`.
        train, evals: batch layouts, the latter by split.
    """

    examples: dict[str, list[dict]]
    section: dict[str, Any]
    data: tasks.TaskData
    task: nn.Module
    train: Examples
    evals: dict[str, Examples]


def list_sections(config: ConfigDict) -> dict[str, Section]:
    """Lists what a recipe says of each task, by name; {"": ...} where it has one task.

    Keys:
        only: the one task that is trained; "": all are.
        weight: of a task's loss among those of all tasks.

    Raises:
        UserError: the recipe is of one task and of several, or of none.
    """
    batches = config.batches.to_dict()
    several = config.get("tasks", {})
    if not several:
        if missing := [name for name in ("data", "task") if name not in config]:
            raise UserError(f"the recipe has no {missing[0]}: it says what is learned, and of what")
        return {"": Section(config.data, config.task.to_dict(), 1.0, batches)}
    if both := [name for name in ("data", "task") if name in config]:
        raise UserError(f"the recipe has {both[0]} and tasks: set it in each of the tasks")
    only = config.get("mixture", {}).get("only", "")
    if only and only not in several:
        raise UserError(f"mixture.only={only!r} is none of {', '.join(sorted(several))}")
    sections = {}
    # Sorted, as a recipe that was saved and read again has them in another order.
    for name in sorted([only] if only else several):
        if not name.isidentifier():
            raise UserError(f"tasks: {name!r} is no name: letters, digits and _")
        sections[name] = call_section(f"tasks.{name}", _build_section, several[name], above=batches)
    return sections


def _build_section(
    *,
    above: Mapping[str, Any],
    data: ConfigDict,
    task: ConfigDict,
    weight: float = 1.0,
    batches: Mapping[str, Any] | None = None,
) -> Section:
    changes = dict(batches or {})
    # A step has as many rows whichever task it is of: devices and processes share them out.
    if both := changes.keys() - {"L", "lengths"}:
        raise UserError(f"batches.{min(both)} is the same for all tasks: L and lengths may differ")
    return Section(data, task.to_dict(), weight, {**above, **changes})


def read_examples(
    config: ConfigDict, say: Callable[[str], None], most: int = 0, task: str = ""
) -> dict[str, list[dict]]:
    """Reads the examples of each split that a section `data` names, and draws what it asks for.

    Args:
        most: so many training examples are drawn; 0: all are taken.
        task: of several, the one whose section this is.

    Raises:
        UserError: a file is missing or malformed, or none is named to train on.
    """
    section = f"tasks.{task}.data" if task else "data"
    fields, paths, draws = part_data_section(config)
    examples = {}
    for split, path in paths.items():
        if path is None or path == "":
            continue
        changes = {"path": path} if isinstance(path, str) else path
        key = split if isinstance(path, str) else f"{split}.path" if "path" in path else "path"
        with name_key(f"{section}.{key}"):
            every = {**fields, **changes}
            whole = call_section(f"{section}.{split}", datasets.read, every)
        examples[split] = whole.examples
        say(f"{split}: {len(whole.examples):,} examples")
        if split == "train" and 0 < most < len(whole.examples):
            examples[split] = draw_examples(whole.examples, most)
            say(f"  {most:,} of them are trained on")
        for note in whole.notes:
            say(f"  {note}")
    if "train" not in examples:
        raise UserError(f"no training examples are named: --config.{section}.train=...")
    splits = draw_splits(examples, **draws)
    if any(draws.get(name) for name in ("folds", "dev_share")):
        say("drawn: " + ", ".join(f"{split} {len(part):,}" for split, part in splits.items()))
    return splits


@contextlib.contextmanager
def name_key(key: str) -> Iterator[None]:
    """Adds the key of a recipe to the error of a file that is not there.

    Raises:
        UserError: as the block does.
    """
    try:
        yield
    except UserError as error:
        if not isinstance(error.__cause__, MISSING):
            raise
        raise UserError(f"{error}; say where it is: --config.{key}=...") from error


def part_data_section(config: ConfigDict) -> tuple[dict[str, Any], ...]:
    """Parts a section `data` in fields of the reader, paths of splits, fields of `draw_splits`.

    Keys:
        train, dev, test: a path, or a section of a path and of fields that differ; "": none.
        path: a file or a folder, as the format reads.
        format: a file of finetune/datasets, or a module of your own.
    """
    fields = config.to_dict()
    paths = {split: fields.pop(split, None) for split in SPLITS}
    draws = {name: fields.pop(name) for name in DRAWS if name in fields}
    return fields, paths, draws


def draw_examples(examples: list[dict], count: int) -> list[dict]:
    # The same ones for every seed, in their order.
    numbers = shuffle_array(np.arange(len(examples)), 0)[:count]
    return [examples[i] for i in sorted(numbers)]


def iter_texts(examples: list[dict]) -> Iterator[str]:
    for example in examples:
        for name in ("texts", "choices", "candidates"):
            yield from example.get(name, [])
        for name in ("question", "context", "query"):
            if name in example:
                yield example[name]
        # The words of a text that is there, too, would count twice.
        if "words" in example and "texts" not in example:
            yield " ".join(example["words"])


def build_layouts(
    batches: Mapping[str, Any],
    data: tasks.TaskData,
    examples: Mapping[str, list[dict]],
    seed: int,
    name: str = "",
) -> tuple[Examples, dict[str, Examples]]:
    """Builds the training layout, and those of the held-out splits whose labels are known.

    Args:
        batches: the section of the task's recipe, see below.
        seed: of the order of the training examples.
        name: of the task; "": there is one.

    Keys:
        B: rows of a batch, over all hosts.
        L: tokens of a row, at most.
        eval_B: rows of a batch of held-out examples.
        lengths: a batch whose rows are all as short is cut to one of these lengths; (): none is.

    Raises:
        UserError: the recipe cuts rows that are padded in front, or the task's arrays are wrong.
    """
    arrays = data.training_arrays(examples["train"])
    # Also of a task from outside, whose rows a kernel would misread without a word.
    check_padding(arrays, data.inputs.format.padding)
    fields = dict(B=batches["B"], L=batches["L"], task=name)
    lengths = batches.get("lengths", ())
    if lengths and data.inputs.format.padding == "left":
        raise UserError("batches.lengths cuts rows at their end: this text format pads in front")
    train = Examples(arrays, seed=seed, shuffle=True, lengths=lengths, **fields)
    fields["B"] = batches.get("eval_B", 32)
    evals = {}
    for split, rows in examples.items():
        if split != "train" and all(map(datasets.has_labels, rows)):
            arrays = build_held_out_arrays(data, rows, split)
            check_padding(arrays, data.inputs.format.padding)
            evals[split] = Examples(arrays, **fields)
    return train, evals


def build_held_out_arrays(data: tasks.TaskData, examples: list[dict], split: str) -> tasks.Arrays:
    """Builds the arrays of a held-out split.

    Raises:
        UserError: training shows none of their labels, as where they have other names.
    """
    arrays = data.arrays(examples)
    # A task that has several parts has several labels of one row, too: "intent.label_B".
    for name in (x for x in arrays if x.rpartition(".")[2] in ("label_B", "label_BL")):
        numbers = arrays[name]
        # Some unseen labels are errors to be counted; nothing else are labels of another kind.
        if numbers.dtype == np.int32 and (numbers == UNSEEN).any() and not (numbers >= 0).any():
            notes = " ".join(data.notes)
            raise UserError(f"data.{split}: training shows none of its labels: {notes}")
    return arrays
