"""Initializes a fine-tuning job with a pretrained run's model, tokenizer and weights, or none."""

import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from ml_collections import ConfigDict

import modules
from finetune import word_vectors
from pretrain.checkpoint import integrity
from pretrain.data import tokenizers
from pretrain.data.tokenizers import registry
from pretrain.distributed.sharding import Layout, make_mesh
from pretrain.inference.text_format import format_name, load_format
from pretrain.inference.trained_run import Run, drawn, head_params, opened
from pretrain.runtime.errors import UserError
from pretrain.runtime.sections import call_section

FREE = {  # fields of a model that may differ from those it was pretrained with
    "dropout",
    "attention_dropout",
    "dtype",
    "initializer",
    "init_scale",
}

# Where the parameters of `finetune.encoders.language_model` keep those of the run's head.
LANGUAGE_MODEL_HEAD = "encoder/language_model_head/"


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
    config: ConfigDict, texts: Callable[[], Any], held_out: Callable[[], Any] = tuple
) -> Start:
    """Opens the run in config.init; for "" builds from config.text_format, .tokens and .model.

    Args:
        texts: () -> the training texts; a vocabulary is learned from them without a run.
        held_out: () -> the other texts, whose words are known if they have a vector.

    Raises:
        UserError: there is no run, or config.model has another size than the run's.
    """
    changes = dict(config.get("model", {}))
    execution = {name: x for name, x in config.get("execution", {}).items() if x is not None}
    vectors = config.get("vectors", {})
    if not config.init:
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
    run = opened(Path(config.init).expanduser())
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


def restore_backbone(
    start: Start, say: Callable[[str], None], random_init: bool = False
) -> Callable[[Any], Any]:
    """Returns a function that puts the pretrained backbone into randomly initialized parameters.

    Args:
        say: called with a line for every parameter: restored, new, or ignored.
        random_init: the parameters stay as they are.
    """

    def prepare(params: dict[str, Any]) -> dict[str, Any]:
        if start.run is None:
            say("all parameters are new: init is ''")
            for note in start.vectors.notes if start.vectors else ():
                say(f"  {note}")
            return start.vectors.place(params) if start.vectors else params
        if random_init:
            say(f"all parameters are new: of {start.run.workdir} only tokenizer and architecture")
            return params
        layout, backbone = Layout(make_mesh(data=1, fsdp=-1)), start.run.backbone
        shapes = jax.eval_shape(lambda: drawn(backbone))
        # Spread over all devices: the run's weights and the job's are in memory together.
        weights, step = start.run.weights(layout.like({"backbone": shapes}), "backbone/")
        new, old = integrity.flatten(params), integrity.flatten(weights)
        if any(name.startswith(LANGUAGE_MODEL_HEAD) for name in new):
            head = integrity.flatten(head_params(start.run, layout))
            old |= {LANGUAGE_MODEL_HEAD + name: x for name, x in head.items()}
        merged, table = {}, []
        for name, x in new.items():
            merged[name], outcome = _merge(name, x, old.get(name))
            table.append(f"{name} {list(x.shape)}: {outcome}")
        table += [f"{name}: ignored, has no place here" for name in old.keys() - new.keys()]
        say(f"weights of {start.run.workdir}, step {step}:")
        for line in table:
            say(f"  {line}")
        return integrity.nest(merged)

    return prepare


def _merge(name: str, new: jax.Array, old: jax.Array | None) -> tuple[jax.Array, str]:
    """Returns a parameter and what became of it; rows beyond the pretrained ones stay new."""
    if old is None:
        return new, "new"
    if old.shape == new.shape:
        return jax.device_put(old, new.sharding), "restored"
    rows = old.shape[0]
    if old.shape[1:] != new.shape[1:] or rows > new.shape[0]:
        raise UserError(f"{name}: {new.shape} here, {old.shape} in the pretrained run")
    concatenate = jax.jit(lambda o, n: jnp.concatenate([o, n[rows:]]), out_shardings=new.sharding)
    # Through the host: the two are sharded differently, as rows of another number are.
    return concatenate(np.asarray(old), new), f"restored, and {new.shape[0] - rows} new rows"
