"""Tagged sentences, and tiny backbones of every system that read them."""

import functools

import jax
import numpy as np

import modules
from finetune import tasks
from finetune.inputs.rows import RowBuilder
from finetune.tasks import tag
from pretrain.data.tokenizers import registry
from pretrain.inference.text_format import load_format
from tests.support import transformer_inputs as cases
from tests.support.compiler import quick_jit

TEXT = """\
fada/B-PER gefin/I-PER lost/O koba/B-LOC
the/O mone/B-LOC
koba/B-LOC fada/B-PER gefin/I-PER
a/O long/O way/O from/O pustro/B-PER to/O mone/B-LOC koba/I-LOC"""
EXAMPLES = [
    {
        "words": [x.split("/")[0] for x in line.split()],
        "labels": [x.split("/")[1] for x in line.split()],
        "where": f"a.conll, line {i}",
    }
    for i, line in enumerate(TEXT.split("\n"), 1)
]


def write_conll(path):
    """Writes the sentences as a file of words and tags."""
    path.write_text(TEXT.replace("/", "\t").replace("\n", "\n\n").replace(" ", "\n") + "\n")


LABELS = ["O", "B-LOC", "I-LOC", "B-PER", "I-PER"]
TOKENS = {"bert": ("wordpiece", 50), "gpt": ("byte_bpe", 270), "xlnet": ("sentencepiece", 44)}
WIDTHS = dict(D=16, H=2, K=8, N=1, F=24, dropout=0.0, attention_dropout=0.0)
BACKBONES = {
    "bert": dict(name="transformer", **WIDTHS, **cases.BERT, L=64),
    "gpt": dict(name="transformer", **WIDTHS, **cases.GPT2, L=64),
    "xlnet": dict(name="two_stream", **WIDTHS),
    "elmo": dict(
        name="elmo",
        V=0,
        D=8,
        U=12,
        N=1,
        E=4,
        filters=((1, 4), (2, 8)),
        highways=1,
        W=12,
        dropout=0.0,
    ),
}
SYSTEMS = list(BACKBONES)


@functools.cache
def tokenizer(system):
    return learned(system, (" ".join(x["words"]) for x in EXAMPLES), TOKENS)


def learned(system, texts, tokens):
    """The system's kind of tokenizer, as large as `tokens` says."""
    if system in ("elmo", "words"):
        return registry.learn(texts, name="words", split="blank")
    name, V = tokens[system]
    return registry.learn(texts, name=name, V=V)


def form(system, L=40, examples=EXAMPLES, **fields):
    inputs = RowBuilder(load_format(system), tokenizer(system), L, W=BACKBONES[system].get("W", 0))
    fields = {"scheme": "iob2"} | fields
    return tag.TaskData(inputs, examples, **fields)


def task(made, **fields):
    """Composes the module of a form; `fields` are sections of `task`."""
    size = next(x for name, x in BACKBONES.items() if load_format(name) == made.inputs.format)
    sized = {} if "V" in size else {"V": made.inputs.tokenizer.V + made.inputs.new}
    fields["head"] = {"dropout": 0.0, **fields.get("head", {})}
    return tasks.build_task(modules.build(**size, **sized), made, **fields)


def batch(made, examples=EXAMPLES):
    return add_weights(made.arrays(examples))


def add_weights(arrays):
    """Completes arrays to a batch."""
    return arrays | {"weight_B": np.ones(len(next(iter(arrays.values()))), np.float32)}


def draw_params(module, rows, scale=0.4):
    """Parameters so large that all of them matter."""
    init = functools.partial(module.init, train=False)
    shapes = jax.eval_shape(init, jax.random.key(0), rows)["params"]
    rng = np.random.default_rng(0)
    return jax.tree.map(lambda x: rng.normal(0, scale, x.shape).astype(np.float32), shapes)


def told(module, params, rows, method="predict", **given):
    return jax.device_get(
        quick_jit(lambda p, b: module.apply({"params": p}, b, method=method, **given))(params, rows)
    )
