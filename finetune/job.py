"""A fine-tuning job put together: examples, inputs, task and layouts; and opened again later."""

import inspect
import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from flax import linen as nn
from ml_collections import ConfigDict

from finetune import datasets, initialize, tasks
from finetune.inputs.batches import Examples
from finetune.inputs.labels import UNSEEN
from finetune.inputs.rows import RowBuilder
from pretrain.inference.text_format import format_name, load_format
from pretrain.inference.trained_run import opened
from pretrain.runtime.errors import UserError, section
from pretrain.runtime.files import read_json, write_json

KEPT = "task.json"
SPLITS = ("train", "dev", "test")


class Job(NamedTuple):
    """All that the loop is called with.

    Attributes:
        examples: by split, as read.
        form, task: of `finetune.tasks`.
        train, evals: layouts.
    """

    start: initialize.Start
    examples: dict[str, list[dict]]
    form: Any
    task: nn.Module
    train: Examples
    evals: dict[str, Examples]

    def score(self, split: str, outputs: dict[str, np.ndarray]) -> dict[str, float]:
        """The task's metrics on a held-out split."""
        return self.form.scores(self.examples[split], outputs)


def made(config: ConfigDict, say: Callable[[str], None]) -> Job:
    """Reads the data and builds the job of a recipe; config.optim.steps is set from its epochs.

    Raises:
        UserError: something in the recipe or in the data is not as it should be.
    """
    examples = read(config, say)
    if "train" not in examples:
        raise UserError("data.train is to name the training examples")
    start = initialize.opened_or_new(config, lambda: texts(examples["train"]))
    inputs = made_inputs(start, config.batches.L)
    kind, fields = the_kind(config)
    own = {name: fields.pop(name) for name in list(fields) if name in form_fields(kind)}
    with section("task"):
        form = kind.Form(inputs, examples["train"], **own)
        task = kind.Task(start.backbone(inputs.new), **{**form.head(), **fields})
    batches = dict(B=config.batches.B, L=config.batches.L)
    learned = getattr(form, "training", form.arrays)(examples["train"])
    train = Examples(learned, seed=config.seed, shuffle=True, **batches)
    evals = {
        split: Examples(
            held_out(form, found, split), **{**batches, "B": config.batches.get("eval_B", 32)}
        )
        for split, found in examples.items()
        if split != "train" and known(found)
    }
    for note in dict.fromkeys(form.notes):
        say(note)
    if not config.optim.get("steps"):
        config.optim.steps = math.ceil(train.size * config.epochs / config.batches.B)
    for name in ("warmup", "unfreeze_every"):
        if 0 < config.optim.get(name, 0) < 1:
            config.optim[name] = round(config.optim[name] * config.optim.steps)
    return Job(start, examples, form, task, train, evals)


def read(config: ConfigDict, say: Callable[[str], None]) -> dict[str, list[dict]]:
    """The examples of each split that config.data names."""
    fields = config.data.to_dict()
    paths = {split: fields.pop(split, None) for split in SPLITS}
    found = {}
    for split, own in paths.items():
        if own is None or own == "":
            continue
        own = {"path": own} if isinstance(own, str) else own
        with section(f"data.{split}"):
            made = datasets.read(**{**fields, **own})
        found[split] = made.examples
        say(f"{split}: {len(made.examples):,} examples")
        if split == "train" and 0 < config.get("max_train_examples", 0) < len(made.examples):
            found[split] = drawn(made.examples, config.max_train_examples)
            say(f"  {config.max_train_examples:,} of them are trained on")
        for note in made.notes:
            say(f"  {note}")
    return found


def drawn(examples: list[dict], count: int) -> list[dict]:
    """So many of them, the same ones each time, in their order."""
    numbers = np.random.default_rng(0).permutation(len(examples))[:count]
    return [examples[i] for i in sorted(numbers)]


def held_out(form: Any, examples: list[dict], split: str) -> dict[str, np.ndarray]:
    """Their arrays.

    Raises:
        UserError: training shows none of their labels, which may go by other names there.
    """
    arrays = form.arrays(examples)
    for name in arrays.keys() & {"label_B", "label_BL"}:
        numbers = arrays[name]
        if numbers.dtype == np.int32 and (numbers == UNSEEN).any() and not (numbers >= 0).any():
            told = " ".join(form.notes)
            raise UserError(f"data.{split}: training shows none of its labels: {told}")
    return arrays


def known(examples: list[dict]) -> bool:
    """Whether what is to be told is known of all of them."""
    names = ("label", "labels", "answers", "relevance")
    return all(
        x.get("impossible") or any(x.get(name) not in (None, []) for name in names)
        for x in examples
    )


def texts(examples: list[dict]) -> Iterator[str]:
    """All text in them."""
    for example in examples:
        for name in ("texts", "choices", "candidates"):
            yield from example.get(name, [])
        for name in ("question", "context", "query"):
            if name in example:
                yield example[name]
        if "words" in example:
            yield " ".join(example["words"])


def made_inputs(start: initialize.Start, L: int, added: int = 0) -> RowBuilder:
    """How this start's backbone reads texts.

    Args:
        added: rows of its V that are of new tokens already.

    Raises:
        UserError: it reads no row of L, or that has no room for text.
    """
    positions = start.model.get("L", L)
    if positions < L:
        raise UserError(f"batches.L={L}: this model reads rows of at most {positions} tokens")
    backbone = start.backbone()
    example = backbone.example()  # type: ignore[attr-defined]
    inputs = RowBuilder(
        load_format(start.text_format),
        start.tokenizer,
        L,
        W=example.shape[2] if example.ndim == 3 else 0,
        V=start.model.get("V", 0) - added,
        S=getattr(backbone, "S", None),
    )
    marks = len(inputs.row(inputs.tokens([""])).ids)
    if marks >= L:
        raise UserError(f"batches.L={L}: a row has {marks} marks, and then no room for a word")
    return inputs


def the_kind(config: ConfigDict) -> tuple[Any, dict[str, Any]]:
    """The task's module and fields."""
    fields = config.task.to_dict()
    with section("task"):
        return tasks.kind(fields.pop("name")), fields


def form_fields(kind: Any) -> set[str]:
    """Names of what the host's part of a task is told."""
    return set(inspect.signature(kind.Form.__init__).parameters) - {"self", "inputs", "examples"}


def recipe(job: Job, config: ConfigDict) -> ConfigDict:
    """The recipe with all of the model in it: what is kept beside the weights, and compared."""
    model = dict(initialize.kept_model(job.start, job.task.backbone))  # type: ignore[attr-defined]
    whole = json.loads(config.to_json_best_effort())
    start = dict(text_format=job.start.text_format, execution=job.start.execution)
    return ConfigDict(whole | dict(model=model, **start))


def keep(job: Job, workdir: Path) -> None:
    """Leaves beside the recipe what else it takes to use the job's weights."""
    job.start.tokenizer.save(workdir / "tokenizer")
    write_json(workdir / KEPT, {"form": job.form.kept(), "head": job.form.head()})


class Tuned(NamedTuple):
    """A fine-tuned run, opened to be used."""

    run: Any
    form: Any
    task: nn.Module


def reopened(workdir: Path) -> Tuned:
    """The fine-tuned run in this folder.

    Raises:
        UserError: it holds none.
    """
    run = opened(workdir)
    if not (workdir / KEPT).exists():
        raise UserError(f"{workdir} holds a run that was not fine-tuned: it has no {KEPT}")
    kept = read_json(workdir / KEPT)
    kind, fields = the_kind(run.config)
    fields = {k: v for k, v in fields.items() if k not in form_fields(kind)}
    name = format_name(run.config)
    execution = dict(run.config.get("execution", {}))
    start = initialize.Start(name, run.config.model.to_dict(), run.tokenizer, run, execution)
    inputs = made_inputs(start, run.config.batches.L, len(load_format(name).new_tokens))
    form = kind.Form(inputs, [], **kept["form"])
    return Tuned(run, form, kind.Task(run.backbone, **{**kept["head"], **fields}))
