"""Tasks of texts on tiny backbones: a few labelled examples, and what a task computes of them."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

from flax import linen as nn

from finetune import tasks
from finetune.inputs.rows import RowBuilder
from finetune.tasks import classify
from pretrain.data.tokenizers import wordpiece
from pretrain.inference.text_format import load_format
from tests.support import gpt_releases
from tests.support import transformer_inputs as cases
from tests.support.bert_release import PIECES
from tests.support.compiler import quick_jit
from tests.support.tagging_data import add_weights, draw_params

L = 12
EXAMPLES = [
    {"texts": ["a b c", "d"], "label": "no", "where": "row 1"},
    {"texts": ["e f", "g h i"], "label": "yes", "where": "row 2"},
    {"texts": ["a", "b c d"], "label": "yes", "where": "row 3"},
    {"texts": ["b d f h"], "label": "no", "where": "row 4"},
]


@functools.cache
def bert():
    """(inputs, backbone)."""
    tokens = wordpiece.Tokenizer(PIECES)
    backbone = cases.tiny(**cases.BERT | dict(V=tokens.V, N=1, L=L))
    return RowBuilder(load_format("bert"), tokens, L), backbone


@functools.cache
def gpt():
    """(inputs, backbone)."""
    tokens = gpt_releases.vocabulary("hugging_face")
    backbone = cases.tiny(**cases.GPT2 | dict(V=tokens.V + 3, N=1, L=L))
    return RowBuilder(load_format("gpt"), tokens, L), backbone


class Case(NamedTuple):
    """A task, its rows, parameters that all matter, and (params, batch) -> (metrics, outputs)."""

    data: Any
    task: nn.Module
    batch: dict
    params: dict
    run: Callable


def build(system, kind=classify, examples=EXAMPLES, host=None, **fields) -> Case:
    """Builds a task; `host` has fields of its host half, `fields` the other sections."""
    inputs, backbone = system
    data = kind.TaskData(inputs, examples, **(host or {}))
    fields["head"] = {"dropout": 0.0, **fields.get("head", {})}
    task = tasks.build_task(backbone, data, **fields)
    batch = add_weights(data.arrays(examples))

    @quick_jit
    def run(params, batch):
        given = {"params": params}, batch
        return task.apply(*given, train=False), task.apply(*given, method="predict")

    return Case(data, task, batch, draw_params(task, batch), run)
