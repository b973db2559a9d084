"""Tiny backbones of every system, and the rows of options that they read."""

import functools

import jax
import numpy as np

from finetune.inputs.rows import RowBuilder
from pretrain.inference.text_format import load_format
from tests.support.compiler import quick_jit
from tests.support.tagging_data import BACKBONES, SYSTEMS, add_weights, draw_params, learned, task

__all__ = ["BACKBONES", "SYSTEMS", "draw_params", "task"]
batch = add_weights

LINES = """\
the dog went out . the sun came
why came the dog home
a cat came home where the rain went
the cat saw rain out wet a dry sun
why _ home"""
TOKENS = {"bert": ("wordpiece", 56), "gpt": ("byte_bpe", 264), "xlnet": ("sentencepiece", 40)}


@functools.cache
def tokenizer(system):
    return learned(system, iter(LINES.split("\n")), TOKENS)


def form(kind, system, examples, L=48, **fields):
    inputs = RowBuilder(load_format(system), tokenizer(system), L, W=BACKBONES[system].get("W", 0))
    return kind.TaskData(inputs, examples, **fields)


def predictor(module, params):
    """The logits of rows, compiled once for rows of a shape."""
    told = quick_jit(lambda p, b: module.apply({"params": p}, b, method="predict")["logits_BO"])
    return lambda rows: np.asarray(told(params, rows))


def learner(module):
    """(parameters, rows) -> (gradients of the summed loss, sums)."""

    def loss(params, rows):
        sums = module.apply({"params": params}, rows, train=False)
        return sums["loss"].total, sums

    return quick_jit(jax.grad(loss, has_aux=True))
