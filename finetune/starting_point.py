"""Begins a fine-tuning job with a pretrained run's model and tokenizer, or with new ones."""

import functools
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from flax import linen as nn
from ml_collections import ConfigDict

import modules
from finetune import word_vectors
from pretrain.data import tokenizers
from pretrain.data.tokenizers import registry
from pretrain.inference.run import Run
from pretrain.inference.text_format import format_name, load_format
from pretrain.runtime.errors import UserError
from pretrain.runtime.sections import call_section

FREE = {  # fields of a model that may differ from those it was pretrained with
    "dropout",
    "attention_dropout",
    "dtype",
    "initializer",
    "init_scale",
}


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
    """

    text_format: str
    model: dict[str, Any]
    tokenizer: tokenizers.Tokenizer
    run: Run | None
    execution: dict[str, Any]
    head: dict[str, Any]
    vectors: word_vectors.Table | None = None

    def backbone(self) -> nn.Module | None:
        """Builds the backbone, if there is one."""
        if not self.model:
            return None
        return call_section("model", modules.build, self.model, execution=self.execution)


def open_start(
    config: ConfigDict,
    run: Run | None,
    texts: Callable[[], Any],
    held_out: Callable[[], Any] = tuple,
) -> Start:
    """Begins with a pretrained run, or with what config.text_format, .tokens and .model say.

    Args:
        run: the pretrained run; None: there is none.
        texts: () -> the training texts; a vocabulary is learned from them without a run.
        held_out: () -> the other texts, whose words are known if they have a vector.

    Raises:
        UserError: config.model has another size than the run's.
    """
    changes = dict(config.get("model", {}))
    execution = {name: x for name, x in config.get("execution", {}).items() if x is not None}
    vectors = config.get("vectors", {})
    if word_vectors.is_of_task(vectors):
        vectors = {}  # of no embedding of a backbone
    if run is None:
        tokenizer = call_section("tokens", registry.learn, config.tokens, texts=texts())
        table = None
        if vectors.get("path"):
            parts = dict(texts=texts(), held_out=held_out(), seed=config.seed)
            build = functools.partial(word_vectors.build_table, tokenizer)
            tokenizer, table = call_section("vectors", build, vectors, **parts)
        new = len(load_format(config.text_format).new_tokens)
        sizes = {"V": tokenizer.V + new, "D": table and table.rows_VD.shape[1]}
        # What a recipe leaves open follows from the texts, and from the vectors.
        sized = {name: x for name, x in sizes.items() if changes.get(name, 0) is None}
        if None in sized.values():
            raise UserError("model.D: say how wide the words' vectors are, or name vectors.path")
        model = changes | sized
        return Start(config.text_format, model, tokenizer, None, execution, {}, table)
    if vectors.get("path"):
        raise UserError(f"vectors.path: {config.init} has an embedding already: leave one out")
    return start_from(run, changes, execution, config.get("text_format", ""))


def start_from(
    run: Run,
    changes: Mapping[str, Any] = MappingProxyType({}),
    execution: Mapping[str, Any] = MappingProxyType({}),
    text_format: str = "",
) -> Start:
    """Begins with a pretrained run; V grows by the text format's new tokens.

    Args:
        changes, execution: fields of these sections that differ from the run's.
        text_format: in place of the run's; "": the run's.

    Raises:
        UserError: the model would be of another size.
    """
    model = run.config.model.to_dict()
    if wrong := [x for x in changes if x not in FREE and model.get(x) != changes[x]]:
        what = ", ".join(f"{x}={changes[x]!r} instead of {model.get(x)!r}" for x in wrong)
        raise UserError(f"model: {run.workdir} was pretrained with another: {what}")
    text_format = text_format or format_name(run.config)
    new = len(load_format(text_format).new_tokens)
    grown = {"V": model["V"] + new} if new else {}
    execution = {**run.config.get("execution", {}), **execution}
    head = dict(run.config.get("head", {}))
    return Start(text_format, {**model, **changes, **grown}, run.tokenizer, run, execution, head)
