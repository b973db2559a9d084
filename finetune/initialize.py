"""Puts the weights of a pretrained run in the place of a job's fresh parameters.

The backbone's always; a task's own where the run has learned that task among several.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from finetune.several.shared_tasks import TASKS
from finetune.starting_point import Start
from pretrain.checkpoint import named_leaves, transfer
from pretrain.distributed.sharding import Layout, make_mesh
from pretrain.inference.trained_run import (
    load_backbone_params,
    load_head_params,
    load_named_params,
)
from pretrain.runtime.errors import UserError

STACK = "layers"  # within the backbone: arrays whose first dimension is the layers
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
        backbone = take_layers(backbone, start.layers)
        new, old = named_leaves.flatten(params), named_leaves.flatten({"backbone": backbone})
        if any(name.startswith(LANGUAGE_MODEL_HEAD) for name in new):
            head = named_leaves.flatten(load_head_params(start.run, layout))
            old |= {LANGUAGE_MODEL_HEAD + name: x for name, x in head.items()}
        for task in start.heads:
            learned, _ = load_named_params(start.run, layout, f"{TASKS}{task}/")
            # Another recipe may have given the task another network above the backbone.
            old |= {k: x for k, x in learned.items() if k in new and new[k].shape == x.shape}
        merged, table = transfer.merge(new, old)
        say(f"weights of {start.run.workdir}, step {step}:")
        for line in table:
            say(f"  {line}")
        return named_leaves.nest(merged)

    return prepare


def take_layers(backbone: dict[str, Any], layers: Sequence[int]) -> dict[str, Any]:
    """Takes some layers of a backbone's stack, by their numbers from 1; (): all.

    Raises:
        UserError: the backbone has no stack of layers.
    """
    if not layers:
        return backbone
    if STACK not in backbone:
        raise UserError("init_layers: this backbone has no stack of layers to choose from")
    index = np.array(layers) - 1
    return backbone | {STACK: jax.tree.map(lambda x: x[index], backbone[STACK])}
