"""Puts the weights of a pretrained run in the place of a job's fresh parameters."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from finetune.starting_point import Start
from pretrain.checkpoint import named_leaves
from pretrain.distributed.sharding import Layout, make_mesh
from pretrain.inference.trained_run import load_backbone_params, load_head_params
from pretrain.runtime.errors import UserError

# Where the parameters of `finetune.encoders.language_model` keep those of the run's head.
LANGUAGE_MODEL_HEAD = "encoder/language_model_head/"


def restore_backbone(
    start: Start, say: Callable[[str], None], random_init: bool = False
) -> Callable[[Any], Any]:
    """Returns a function that puts the pretrained backbone into randomly initialized parameters.

    Args:
        say: called with a line for every parameter: restored, new, or ignored.
        random_init: the parameters stay as they are.
    """

    def prepare(params: dict[str, Any]) -> dict[str, Any]:
        for note in start.vectors.notes if start.vectors else ():
            say(note)
        params = start.vectors.place(params) if start.vectors else params
        if start.run is None:
            say("all parameters are new: init is ''")
            return params
        if random_init:
            say(f"all parameters are new: of {start.run.workdir} only tokenizer and architecture")
            return params
        # Spread over all devices: the run's weights and the job's are in memory together.
        layout = Layout(make_mesh(data=1, fsdp=-1))
        backbone, step = load_backbone_params(start.run, layout)
        new, old = named_leaves.flatten(params), named_leaves.flatten({"backbone": backbone})
        if any(name.startswith(LANGUAGE_MODEL_HEAD) for name in new):
            head = named_leaves.flatten(load_head_params(start.run, layout))
            old |= {LANGUAGE_MODEL_HEAD + name: x for name, x in head.items()}
        merged, table = {}, []
        for name, x in new.items():
            merged[name], outcome = _merge(name, x, old.get(name))
            table.append(f"{name} {list(x.shape)}: {outcome}")
        table += [f"{name}: ignored, has no place here" for name in old.keys() - new.keys()]
        say(f"weights of {start.run.workdir}, step {step}:")
        for line in table:
            say(f"  {line}")
        return named_leaves.nest(merged)

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
