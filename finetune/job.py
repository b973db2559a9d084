"""Builds a fine-tuning job, its tasks, from a recipe or from a workdir."""

import itertools
import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from flax import linen as nn
from ml_collections import ConfigDict

from finetune import tasks
from finetune.inputs import task_vectors, word_vectors
from finetune.inputs.rows import RowBuilder
from finetune.several.mixture import Mixture
from finetune.several.parts import (
    Part,
    Section,
    build_layouts,
    iter_texts,
    list_sections,
    read_examples,
)
from finetune.several.shared_tasks import SharedTasks
from finetune.starting_point import Start, open_start
from finetune.tuned_run import TunedRun
from modules.heads import language_model
from pretrain.data.batches import BatchLayout
from pretrain.inference.run import Run
from pretrain.inference.text_format import format_name, load_format
from pretrain.inference.trained_run import load_run
from pretrain.runtime.errors import UserError
from pretrain.runtime.json_files import read_json, write_json
from pretrain.runtime.run_config import DATA, TASK
from pretrain.runtime.sections import call_section, name_section


class Job(NamedTuple):
    """Holds what the training loop is called with.

    Attributes:
        start: model, tokenizer and weights to begin with.
        parts: by task; that of a job of one is called "".
        task: what is trained: the task, or all of them on one backbone.
        train: the layout of its batches.
    """

    start: Start
    parts: dict[str, Part]
    task: nn.Module
    train: Any

    @property
    def evals(self) -> dict[str, BatchLayout]:
        """Returns the held-out layouts, as "dev", or as "sst1/dev" of one of several tasks."""
        return {
            name_stream(name, split): layout
            for name, part in self.parts.items()
            for split, layout in part.evals.items()
        }

    @property
    def only(self) -> Part:
        """Returns the part of a job of one task."""
        (part,) = self.parts.values()
        return part

    def find(self, stream: str) -> tuple[Part, str]:
        """Returns the task of a held-out layout, and its split."""
        name, _, split = stream.rpartition("/")
        return self.parts[name], split

    def score(self, stream: str, outputs: dict[str, np.ndarray]) -> dict[str, float]:
        part, split = self.find(stream)
        return part.data.scores(part.examples[split], outputs)

    def tune(self, values: Mapping[str, float | None]) -> None:
        """Sets what the best evaluation decides of each task, as a threshold."""
        for name, part in self.parts.items():
            begin = name_stream(name, "")
            by_metric = {k.removeprefix(begin): x for k, x in values.items() if k.startswith(begin)}
            part.data.tune(by_metric)


def name_stream(task: str, split: str) -> str:
    return f"{task}/{split}" if task else split


def list_recipes(config) -> dict[str, ConfigDict]:
    """Lists the recipes of config.num_seeds jobs, times the folds if data.fold names none.

    Returns:
        By folder within the workdir; "": itself, of a single job.
    """
    data = config.get("data", {})  # the tasks of a job of several draw one fold each
    count, folds = config.get("num_seeds", 1), data.get("folds", 0)
    has_folds = folds > 0 and data.get("fold") is None
    recipes = {}
    for number, fold in itertools.product(range(count), range(folds if has_folds else 1)):
        # A copy: a job writes into its recipe what follows from its own data, as the steps.
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
    sections, examples = list_sections(config), {}
    for name, section in sections.items():
        tell = name_lines(name, say)
        most = config.get("max_train_examples", 0)
        examples[name] = read_examples(section.data, tell, most, name)
    # After the data: a mistake in them is told before a model is opened.
    pretrained = load_run(Path(config.init).expanduser()) if config.init else None
    start = begin(config, pretrained, sections, examples)
    backbone, parts = start.backbone(), {}
    for name, section in sections.items():
        parts[name] = build_part(start, backbone, section, examples[name], config.seed, name)
        # Once each: several splits may have the same to say.
        for note in dict.fromkeys(parts[name].data.notes):
            name_lines(name, say)(note)
    start = start._replace(heads=find_heads(pretrained, parts))
    if config.get("mixture", {}).get("only") and "means" in config.train:
        config.train.means = narrow_means(config.train.means, parts)
    job = Job(start, parts, *combine(config, backbone, sections, parts))
    if not config.optim.get("steps"):
        config.optim.steps = math.ceil(job.train.size * config.epochs / config.batches.B)
    for name in ("warmup", "unfreeze_every"):
        if 0 < config.optim.get(name, 0) < 1:
            # Shares of all steps, which are known only now.
            config.optim[name] = round(config.optim[name] * config.optim.steps)
    return job


def name_lines(task: str, say: Callable[[str], None]) -> Callable[[str], None]:
    """Returns `say`, which names the task before each line where there are several."""
    return (lambda line: say(f"{task}: {line}")) if task else say


def begin(
    config: ConfigDict,
    pretrained: Run | None,
    sections: dict[str, Section],
    examples: Mapping[str, Mapping[str, list[dict]]],
) -> Start:
    """Begins with the pretrained run, or learns a vocabulary from the texts of all tasks.

    A task's section gets the vocabulary of its own words, where these have vectors.
    """
    splits = [(split, x) for parts in examples.values() for split, x in parts.items()]
    train = [x for split, part in splits if split == "train" for x in part]
    held_out = [x for split, part in splits if split != "train" for x in part]
    # A run brings its vocabulary: nothing is learned from texts.
    texts, others = ([] if pretrained else list(iter_texts(x)) for x in (train, held_out))
    start = open_start(config, pretrained, texts, others, tuple(sections))
    if not word_vectors.is_of_task(config.get("vectors", {})):
        return start
    if len(sections) > 1 or "" not in sections:
        raise UserError("vectors.tables names a task's own words: there are several tasks")
    words, rest = ([x.get("words", ()) for x in y] for y in (train, held_out))
    fields, table = task_vectors.build_own_table(
        config.vectors.to_dict(), sections[""].task, words, rest, config.seed
    )
    sections[""] = sections[""]._replace(task=fields)
    return start._replace(vectors=table)


def build_part(
    start: Start,
    backbone: nn.Module | None,
    section: Section,
    examples: dict[str, list[dict]],
    seed: int,
    name: str,
) -> Part:
    """Builds one task of a job on a backbone, and the layouts of its batches."""
    L = section.batches["L"]
    halves = build_task(start, section.task, L, examples["train"], backbone=backbone, name=name)
    layouts = build_layouts(section.batches, halves[0], examples, seed, name)
    return Part(examples, section.task, *halves, *layouts)


def combine(
    config: ConfigDict,
    backbone: nn.Module | None,
    sections: Mapping[str, Section],
    parts: Mapping[str, Part],
) -> tuple[nn.Module, Any]:
    """Combines tasks to the module and the layout to train: those of the task where it is one."""
    if "" in parts:
        return parts[""].task, parts[""].train
    weights = {name: float(section.weight) for name, section in sections.items()}
    module = SharedTasks(backbone, {name: part.task for name, part in parts.items()}, weights)
    fields = {k: x for k, x in config.get("mixture", {}).items() if k != "only"}
    layouts = {name: part.train for name, part in parts.items()}
    return module, call_section("mixture", Mixture, fields, layouts=layouts, seed=config.seed)


def narrow_means(means: Mapping[str, Sequence[str]], parts: Mapping[str, Part]) -> ConfigDict:
    """Returns the means over the numbers of these tasks, without those that have none."""
    narrowed = {
        mean: tuple(name for name in names if name.partition("/")[0] in parts)
        for mean, names in means.items()
    }
    return ConfigDict({mean: names for mean, names in narrowed.items() if names})


def find_heads(pretrained: Run | None, parts: Mapping[str, Part]) -> tuple[str, ...]:
    """Returns the tasks that the pretrained run has learned, too, with the same labels."""
    if pretrained is None or not (pretrained.workdir / TASK).exists():
        return ()
    known = read_json(pretrained.workdir / TASK).get("tasks", {})
    return tuple(
        name
        for name, part in parts.items()
        # Other labels, or another order of theirs, would need other rows of the head.
        if name in known and known[name].get("labels") == part.data.to_config().get("labels")
    )


def load_job(workdir: Path, name: str = "") -> TunedRun:
    """Opens the fine-tuned run in this folder.

    Args:
        name: of one of its tasks; "": it has one.

    Raises:
        UserError: it holds none, or no such task.
    """
    # A network of the task's own has nothing beneath it.
    run = load_run(workdir, needs_backbone=False)
    if not (workdir / TASK).exists():
        raise UserError(f"{workdir} holds a run that was not fine-tuned: it has no {TASK}")
    name, fields = find_task(workdir, name)
    model, execution = run.config.model.to_dict(), dict(run.config.get("execution", {}))
    head = dict(run.config.get("head", {}))
    start = Start(format_name(run.config), model, run.tokenizer, run, execution, head)
    batches = list_sections(run.config)[name].batches if name else run.config.batches
    backbone = start.backbone()
    data, task = build_task(start, fields, batches["L"], backbone=backbone, name=name)
    # With the same names as in training: the weights are found by these.
    module = SharedTasks(backbone, {name: task}, {name: 1.0}) if name else task
    return TunedRun(run, data, module, name)


def find_task(workdir: Path, name: str) -> tuple[str, dict[str, Any]]:
    """Returns the name and the saved section of a task; the only one's without a name.

    Raises:
        UserError: there is no such task, or there are several and none is named.
    """
    saved = read_json(workdir / TASK)
    sections = saved.get("tasks", {"": saved})
    if not name and len(sections) == 1:
        return next(iter(sections.items()))
    if name not in sections:
        names = ", ".join(filter(None, sections)) or "one task, which has no name"
        raise UserError(f"--task={name}: {workdir} has {names}")
    return name, sections[name]


def save_job(job: Job, workdir: Path) -> None:
    """Saves tokenizer, tasks and numbers of examples: with recipe and weights they are a run."""
    job.start.tokenizer.save(workdir / "tokenizer")
    sections = {name: part.section | part.data.to_config() for name, part in job.parts.items()}
    write_json(workdir / TASK, sections.get("", {"tasks": sections}))
    counts = {
        name_stream(name, split): len(examples)
        for name, part in job.parts.items()
        for split, examples in part.examples.items()
    }
    write_json(workdir / DATA, {"examples": counts})


def build_task(
    start: Start,
    fields: Mapping[str, Any],
    L: int,
    examples: Sequence[dict] = (),
    *,
    backbone: nn.Module | None = None,
    name: str = "",
) -> tuple[tasks.TaskData, nn.Module]:
    """Builds both halves of a task: for training, for resuming it, and for predictions.

    Args:
        fields: the section `task`, of the recipe or as `save_job` left it.
        L: positions of a row.
        examples: of training; none where `fields` hold already what follows from them.
        backbone: that several tasks share; None: `start` has it.
        name: of one of several tasks.

    Raises:
        UserError: a field has no such value, or the backbone reads no such rows.
    """
    backbone = backbone or start.backbone()
    inputs = build_inputs(start, backbone, L)
    with name_section("head"):
        head = backbone and language_model.build(backbone, **start.head)
    with name_section(f"tasks.{name}.task" if name else "task"):
        data = tasks.build_data(inputs, examples, **fields)
        # Where tasks have networks of their own, each is read by its task's.
        network = name if getattr(backbone, "tasks", ()) else ""
        return data, tasks.build_task(
            backbone, data, language_model_head=head, network=network, **fields
        )


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
