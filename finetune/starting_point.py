"""Begins a fine-tuning job with a pretrained run's model and tokenizer, or with new ones."""

import functools
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from flax import linen as nn
from ml_collections import ConfigDict

import modules
from finetune.inputs import word_vectors
from modules import plugins
from pretrain.data import tokenizers
from pretrain.data.tokenizers import registry
from pretrain.inference.run import Run
from pretrain.inference.text_format import check_direction, format_name, load_format
from pretrain.runtime.errors import UserError
from pretrain.runtime.sections import call_section


class Start(NamedTuple):
    """Model, tokenizer and weights that a job begins with.

    Attributes:
        text_format: the name of the way in which texts are framed.
        model: the section `model` of the pretrained run, or of the recipe; its V counts the new
            tokens of the text format.  {}: there is no backbone.
        tokenizer: of that run, or learned from the training texts.
        run: the pretrained run; None where training is from scratch.
        execution: the section of the pretrained run, with the fields that the recipe changes.
        head: the section of the pretrained run.
        vectors: what the words' embedding begins with; None: it is drawn, or pretrained.
        heads: tasks of the pretrained run whose own parameters are restored, too.
        layers: of the run, from 1, that there are; (): all.
    """

    text_format: str
    model: dict[str, Any]
    tokenizer: tokenizers.Tokenizer
    run: Run | None
    execution: dict[str, Any]
    head: dict[str, Any]
    vectors: word_vectors.Table | None = None
    heads: tuple[str, ...] = ()
    layers: tuple[int, ...] = ()

    def backbone(self) -> nn.Module | None:
        if not self.model:
            return None
        return call_section("model", modules.build, self.model, execution=self.execution)


def open_start(
    config: ConfigDict,
    run: Run | None,
    texts: Sequence[str] = (),
    held_out: Sequence[str] = (),
    tasks: Sequence[str] = (),
) -> Start:
    """Begins with a pretrained run, or with what config.text_format, .tokens and .model say.

    Args:
        run: the pretrained run; None: there is none.
        texts: of training; a vocabulary is learned from them without a run.
        held_out: the other texts, whose words are known if they have a vector.
        tasks: of the job, for a backbone that has networks of their own.

    Raises:
        UserError: config.model has another size than the run's.
    """
    if run is None:
        return _start_from_scratch(config, texts, held_out, tasks)
    if _backbone_vectors(config).get("path"):
        raise UserError(f"vectors.path: {config.init} has an embedding already: leave one out")
    # Fields that a recipe leaves open are as the run has them.
    changes = {name: x for name, x in config.get("model", {}).items() if x is not None}
    if "tasks" in run.config.model:
        # The run's networks stay, as its weights have them; tasks that it has not get new ones.
        changes["tasks"] = tuple(dict.fromkeys((*run.config.model.tasks, *tasks)))
    layers, execution = tuple(config.get("init_layers", ())), _set_execution(config)
    return start_from(run, changes, execution, config.get("text_format", ""), layers)


def _start_from_scratch(
    config: ConfigDict, texts: Sequence[str], held_out: Sequence[str], tasks: Sequence[str]
) -> Start:
    """Begins with a tokenizer and a model that nothing was pretrained with."""
    tokenizer = call_section("tokens", registry.learn, config.tokens, texts=iter(texts))
    table, vectors = None, _backbone_vectors(config)
    if vectors.get("path"):
        parts = dict(texts=texts, held_out=held_out, seed=config.seed)
        build = functools.partial(word_vectors.build_table, tokenizer)
        tokenizer, table = call_section("vectors", build, vectors, **parts)
    new = len(load_format(config.text_format).new_tokens)
    width = table and table.rows_VD.shape[1]
    sizes = {"V": tokenizer.V + new, "D": width, "tasks": tuple(tasks)}
    model = dict(config.get("model", {}))
    # Fields that a recipe leaves open follow from the texts, the vectors and the tasks.
    sized = {name: x for name, x in sizes.items() if model.get(name, 0) is None}
    if None in sized.values():
        raise UserError("model.D: say how wide the words' vectors are, or name vectors.path")
    execution = _set_execution(config)
    return Start(config.text_format, model | sized, tokenizer, None, execution, {}, table)


def _backbone_vectors(config: ConfigDict) -> Mapping[str, Any]:
    """Returns the section `vectors`; {}: there is none, or it is of the task's own words."""
    vectors = config.get("vectors", {})
    return {} if word_vectors.is_of_task(vectors) else vectors


def _set_execution(config: ConfigDict) -> dict[str, Any]:
    return {name: x for name, x in config.get("execution", {}).items() if x is not None}


def start_from(
    run: Run,
    changes: Mapping[str, Any] = MappingProxyType({}),
    execution: Mapping[str, Any] = MappingProxyType({}),
    text_format: str = "",
    layers: Sequence[int] = (),
) -> Start:
    """Begins with a pretrained run; V grows by the text format's new tokens.

    Args:
        changes, execution: fields of these sections that differ from the run's.
        text_format: in place of the run's; "": the run's.
        layers: of the run's, from 1, which the model has in their place; (): all.

    Raises:
        UserError: there is no such layer, the model would be of another size or architecture, or it
            reads in another direction.
    """
    model = run.config.model.to_dict()
    kind = modules.load_backbone(model["name"])
    if unknown := changes.keys() - plugins.select_fields(kind, changes).keys():
        raise UserError(
            f"model.{min(unknown)}: the recipe is for another architecture than {model['name']!r}, "
            f"which {run.workdir} has"
        )
    # A field that the run's recipe leaves out has its default there.
    fixed = {x: model.get(x, getattr(kind, x, None)) for x in changes if x not in kind.FREE_FIELDS}
    if wrong := {x: value for x, value in fixed.items() if value != changes[x]}:
        what = ", ".join(f"{x}={changes[x]!r} instead of {value!r}" for x, value in wrong.items())
        raise UserError(f"model: {run.workdir} was pretrained with another: {what}")
    text_format = text_format or format_name(run.config)
    check_direction(text_format, run.config.get("batches", {}), str(run.workdir))
    new = len(load_format(text_format).new_tokens)
    grown = {"V": model["V"] + new} if new else {}
    if layers:
        check_layers(layers, model, run)
        grown["N"] = len(layers)
    execution = {**run.config.get("execution", {}), **execution}
    head = dict(run.config.get("head", {}))
    model = {**model, **changes, **grown}
    return Start(text_format, model, run.tokenizer, run, execution, head, layers=tuple(layers))


def check_layers(layers: Sequence[int], model: Mapping[str, Any], run: Run) -> None:
    """Raises a UserError if the run's model has no such layers."""
    N = model.get("N", 0)
    if wrong := [n for n in layers if not 1 <= n <= N]:
        raise UserError(f"init_layers: {run.workdir} has {N} layers, and no number {wrong[0]}")
