"""Builds a fine-tuning job, its examples, task and layouts, from a recipe or from a workdir."""

import itertools
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from flax import linen as nn
from ml_collections import ConfigDict

from finetune import datasets, tasks
from finetune.inputs import task_vectors, word_vectors
from finetune.inputs.batches import Examples
from finetune.inputs.labels import UNSEEN
from finetune.inputs.rows import RowBuilder, check_padding
from finetune.inputs.splits import draw_splits
from finetune.starting_point import Start, open_start
from finetune.tuned_run import TunedRun
from modules.heads import language_model
from pretrain.data.batches.shuffling import shuffle_array
from pretrain.inference.text_format import format_name, load_format
from pretrain.inference.trained_run import load_run
from pretrain.runtime.errors import UserError
from pretrain.runtime.json_files import read_json, write_json
from pretrain.runtime.sections import call_section, name_section

TASK = "task.json"  # beside config.json: the section `task`, with labels and the like of the data
SPLITS = ("train", "dev", "test")
DRAWN = ("folds", "fold", "dev_share", "split_seed")  # fields of `data` that are of `draw_splits`


class Job(NamedTuple):
    """Holds what the training loop is called with.

    Attributes:
        start: model, tokenizer and weights to begin with.
        examples: by split, as read.
        section: the recipe's `task`.
        data, task: the halves of `finetune.tasks`.
        train, evals: batch layouts, the latter by split.
    """

    start: Start
    examples: dict[str, list[dict]]
    section: dict[str, Any]
    data: tasks.TaskData
    task: nn.Module
    train: Examples
    evals: dict[str, Examples]

    def score(self, split: str, outputs: dict[str, np.ndarray]) -> dict[str, float]:
        return self.data.scores(self.examples[split], outputs)


def list_recipes(config) -> dict[str, ConfigDict]:
    """Lists the recipes of config.num_seeds jobs, times the folds if data.fold names none.

    Returns:
        By folder within the workdir; "": itself, of a single job.
    """
    count, folds = config.get("num_seeds", 1), config.data.get("folds", 0)
    has_folds = folds > 0 and config.data.get("fold") is None
    recipes = {}
    for number, fold in itertools.product(range(count), range(folds if has_folds else 1)):
        recipe = config.copy_and_resolve_references()
        recipe.seed = config.seed + number
        if has_folds:
            with recipe.unlocked():
                recipe.data.fold = fold
        parts = [f"seed-{number}"] * (count > 1) + [f"fold-{fold}"] * has_folds
        recipes["/".join(parts)] = recipe
    return recipes


def build_job(config: ConfigDict, say: Callable[[str], None]) -> Job:
    """Reads the data and builds the job of a recipe; config.optim.steps is set from its epochs.

    Raises:
        UserError: the recipe or the data is malformed.
    """
    examples = read_examples(config, say)
    held_out = [x for split, part in examples.items() if split != "train" for x in part]
    pretrained = load_run(Path(config.init).expanduser()) if config.init else None
    splits = () if pretrained else (examples["train"], held_out)  # of a run nothing is learned
    start = open_start(config, pretrained, *(list(iter_texts(split)) for split in splits))
    fields = config.task.to_dict()
    if word_vectors.is_of_task(config.get("vectors", {})):
        words, others = ([x.get("words", ()) for x in y] for y in (examples["train"], held_out))
        fields, table = task_vectors.build_own_table(
            config.vectors.to_dict(), fields, words, others, config.seed
        )
        start = start._replace(vectors=table)
    data, task = build_task(start, fields, config.batches.L, examples["train"])
    train, evals = build_layouts(config, data, examples)
    # Once each: several splits may have the same to say.
    for note in dict.fromkeys(data.notes):
        say(note)
    if not config.optim.get("steps"):
        config.optim.steps = math.ceil(train.size * config.epochs / config.batches.B)
    for name in ("warmup", "unfreeze_every"):
        if 0 < config.optim.get(name, 0) < 1:
            # Shares of all steps, which are known only now.
            config.optim[name] = round(config.optim[name] * config.optim.steps)
    return Job(start, examples, fields, data, task, train, evals)


def load_job(workdir: Path) -> TunedRun:
    """Opens the fine-tuned run in this folder.

    Raises:
        UserError: it holds none.
    """
    run = load_run(workdir, needs_backbone=False)
    if not (workdir / TASK).exists():
        raise UserError(f"{workdir} holds a run that was not fine-tuned: it has no {TASK}")
    name, model = format_name(run.config), run.config.model.to_dict()
    execution = dict(run.config.get("execution", {}))
    head = dict(run.config.get("head", {}))
    start = Start(name, model, run.tokenizer, run, execution, head)
    data, task = build_task(start, read_json(workdir / TASK), run.config.batches.L)
    return TunedRun(run, data, task)


def save_job(job: Job, workdir: Path) -> None:
    """Saves the tokenizer and the task beside the recipe: with the weights they are a run."""
    job.start.tokenizer.save(workdir / "tokenizer")
    write_json(workdir / TASK, job.section | job.data.to_config())


def build_task(
    start: Start, fields: Mapping[str, Any], L: int, examples: Sequence[dict] = ()
) -> tuple[tasks.TaskData, nn.Module]:
    """Builds both halves of a task: for training, for resuming it, and for predictions.

    Args:
        fields: the section `task`, of the recipe or as `save_job` left it.
        L: positions of a row.
        examples: of training; none where `fields` hold already what follows from them.

    Raises:
        UserError: a field has no such value, or the backbone reads no such rows.
    """
    backbone = start.backbone()
    inputs = build_inputs(start, backbone, L)
    with name_section("head"):
        head = backbone and language_model.build(backbone, **start.head)
    with name_section("task"):
        data = tasks.build_data(inputs, examples, **fields)
        return data, tasks.build_task(backbone, data, language_model_head=head, **fields)


def build_layouts(
    config: ConfigDict, data: tasks.TaskData, examples: Mapping[str, list[dict]]
) -> tuple[Examples, dict[str, Examples]]:
    """Builds the training layout, and those of the held-out splits whose labels are known.

    Raises:
        UserError: the recipe cuts rows that are padded in front, or the task's arrays are wrong.
    """
    arrays = data.training_arrays(examples["train"])
    # Also of a task from outside, whose rows a kernel would misread without a word.
    check_padding(arrays, data.inputs.format.padding)
    fields = dict(B=config.batches.B, L=config.batches.L)
    lengths = config.batches.get("lengths", ())
    if lengths and data.inputs.format.padding == "left":
        raise UserError("batches.lengths cuts rows at their end: this text format pads in front")
    train = Examples(arrays, seed=config.seed, shuffle=True, lengths=lengths, **fields)
    fields["B"] = config.batches.get("eval_B", 32)
    evals = {}
    for split, rows in examples.items():
        if split != "train" and all(map(datasets.has_labels, rows)):
            arrays = build_held_out_arrays(data, rows, split)
            check_padding(arrays, data.inputs.format.padding)
            evals[split] = Examples(arrays, **fields)
    return train, evals


def read_examples(config: ConfigDict, say: Callable[[str], None]) -> dict[str, list[dict]]:
    """Reads the examples of each split that config.data names, and draws those that it asks for."""
    fields, paths, drawn = part_data_section(config)
    examples = {}
    for split, path in paths.items():
        if path is None or path == "":
            continue
        changes = {"path": path} if isinstance(path, str) else path
        whole = call_section(f"data.{split}", datasets.read, {**fields, **changes})
        examples[split] = whole.examples
        say(f"{split}: {len(whole.examples):,} examples")
        if split == "train" and 0 < config.get("max_train_examples", 0) < len(whole.examples):
            examples[split] = draw_examples(whole.examples, config.max_train_examples)
            say(f"  {config.max_train_examples:,} of them are trained on")
        for note in whole.notes:
            say(f"  {note}")
    if "train" not in examples:
        raise UserError("data.train is to name the training examples")
    splits = draw_splits(examples, **drawn)
    if any(drawn.get(name) for name in ("folds", "dev_share")):
        say("drawn: " + ", ".join(f"{split} {len(part):,}" for split, part in splits.items()))
    return splits


def part_data_section(config: ConfigDict) -> tuple[dict[str, Any], ...]:
    """Parts config.data in fields of the reader, paths of splits, and fields of `draw_splits`."""
    fields = config.data.to_dict()
    paths = {split: fields.pop(split, None) for split in SPLITS}
    drawn = {name: fields.pop(name) for name in DRAWN if name in fields}
    return fields, paths, drawn


def draw_examples(examples: list[dict], count: int) -> list[dict]:
    # The same ones for every seed, in their order.
    numbers = shuffle_array(np.arange(len(examples)), 0)[:count]
    return [examples[i] for i in sorted(numbers)]


def build_held_out_arrays(data: tasks.TaskData, examples: list[dict], split: str) -> tasks.Arrays:
    """Builds the arrays of a held-out split.

    Raises:
        UserError: training shows none of their labels, as where they have other names.
    """
    arrays = data.arrays(examples)
    for name in arrays.keys() & {"label_B", "label_BL"}:
        numbers = arrays[name]
        # Some unseen labels are errors to be counted; nothing else are labels of another kind.
        if numbers.dtype == np.int32 and (numbers == UNSEEN).any() and not (numbers >= 0).any():
            notes = " ".join(data.notes)
            raise UserError(f"data.{split}: training shows none of its labels: {notes}")
    return arrays


def iter_texts(examples: list[dict]) -> Iterator[str]:
    for example in examples:
        for name in ("texts", "choices", "candidates"):
            yield from example.get(name, [])
        for name in ("question", "context", "query"):
            if name in example:
                yield example[name]
        if "words" in example:
            yield " ".join(example["words"])


def build_inputs(start: Start, backbone: Any, L: int) -> RowBuilder:
    """Builds the `RowBuilder` that turns texts into rows for a backbone.

    Raises:
        UserError: the backbone reads no rows of L, or these have no room for text.
    """
    positions = getattr(backbone, "L", L)
    if positions < L:
        raise UserError(f"batches.L={L}: this model reads rows of at most {positions} tokens")
    sizes = {}
    if backbone is not None:
        # Only the shape: processes must join each other before a device is touched.
        example = jax.eval_shape(backbone.example)
        W = example.shape[2] if example.ndim == 3 else 0
        sizes = dict(W=W, V=backbone.V, S=getattr(backbone, "S", None))
    inputs = RowBuilder(load_format(start.text_format), start.tokenizer, L, **sizes)
    marks = len(inputs.row(inputs.tokens([""])).ids)
    if marks >= L:
        raise UserError(f"batches.L={L}: a row has {marks} marks, and then no room for a word")
    return inputs


def resolve_recipe(job: Job, config: ConfigDict) -> ConfigDict:
    """Returns the recipe with the whole model, as it is saved beside the weights."""
    recipe = json.loads(config.to_json_best_effort())
    start = dict(
        text_format=job.start.text_format, execution=job.start.execution, head=job.start.head
    )
    return ConfigDict(recipe | dict(model=dict(job.start.model), **start))
