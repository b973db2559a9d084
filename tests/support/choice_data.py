"""Tiny backbones of every system, and the rows of options that they read."""

import functools

import jax
import numpy as np

import modules
from finetune import tasks
from finetune.inputs.rows import RowBuilder
from pretrain.inference.text_format import load_format
from tests.support.compiler import quick_jit
from tests.support.tagging_data import BACKBONES, SYSTEMS, learned

__all__ = ["BACKBONES", "SYSTEMS"]

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


def task(made, **fields):
    """Composes the module of a form, with a backbone of its system."""
    size = next(x for name, x in BACKBONES.items() if load_format(name) == made.inputs.format)
    sized = {} if "V" in size else {"V": made.inputs.tokenizer.V + made.inputs.new}
    backbone = modules.build(**size, **sized)
    fields["head"] = {"dropout": 0.0, **fields.get("head", {})}
    return tasks.build_task(backbone, made, **fields)


def batch(arrays):
    return arrays | {"weight_B": np.ones(len(arrays["there_BO"]), np.float32)}


def drawn(module, rows, scale=0.4):
    """Parameters so large that all of them matter."""
    init = functools.partial(module.init, train=False)
    shapes = jax.eval_shape(init, jax.random.key(0), rows)["params"]
    rng = np.random.default_rng(0)
    return jax.tree.map(lambda x: rng.normal(0, scale, x.shape).astype(np.float32), shapes)


def predictor(module, params):
    """The logits of rows, compiled once for rows of a shape."""
    told = quick_jit(lambda p, b: module.apply({"params": p}, b, method="predict")["logits_BO"])
    return lambda rows: np.asarray(told(params, rows))


def fell(module, params, rows, steps=40, rate=0.02):
    """The loss before and after so many steps of Adam on these rows."""
    import optax

    tx = optax.adam(rate)

    def loss(p):
        total, weight = jax.tree.leaves(module.apply({"params": p}, rows, train=False)["loss"])
        return total / weight

    @quick_jit
    def step(p, opt):
        value, slope = jax.value_and_grad(loss)(p)
        updates, opt = tx.update(slope, opt)
        return optax.apply_updates(p, updates), opt, value

    opt, values = tx.init(params), []
    for _ in range(steps):
        params, opt, value = step(params, opt)
        values.append(float(value))
    return values[0], values[-1]
