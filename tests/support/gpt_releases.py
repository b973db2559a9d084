"""Tiny runs of GPT-1 and GPT-2, their vocabularies, and releases as others would publish them."""

import json
import pathlib
import string

import jax
from ml_collections import ConfigDict

import modules
from modules.backbones import init_params
from pretrain.checkpoint.named_leaves import flatten
from pretrain.conversion.systems import Source, gpt
from pretrain.data.tokenizers import bpe, byte_bpe
from pretrain.inference.trained_run import build_run
from tests.support import transformer_inputs as cases

SIZES = dict(V=261, D=128, H=2, K=64, N=2, F=512, L=12, dropout=0.1, attention_dropout=0.0)


def backbone(kind: str, **fields):
    own = cases.GPT1 if kind in gpt.GPT1 else cases.GPT2 | dict(residual_scale=True)
    return modules.build("transformer", **(SIZES | own | dict(window=0) | fields))


def vocabulary(kind: str, V: int = SIZES["V"]):
    """A tokenizer of so many pieces, with a merge or two."""
    if kind in gpt.GPT1:
        letters = [*string.ascii_lowercase, *(f"{x}</w>" for x in string.ascii_lowercase)]
        known = ["<unk>", *letters, "th", "the</w>"]
        merges = [("t", "h"), ("th", "e</w>")]
        rest = [f"{i}</w>" for i in range(V - len(known) - 1)]
        return bpe.Tokenizer([*known, *rest, bpe.EOD], merges)
    known, merges = [*byte_bpe.BYTES, "th", "the"], [("t", "h"), ("th", "e")]
    rest = [f"x{i}" for i in range(V - len(known) - 1)]
    return byte_bpe.Tokenizer([*known, *rest, byte_bpe.EOD], merges)


def shapes(model):
    leaves = flatten({"backbone": jax.eval_shape(lambda: init_params(model))})
    return {name: x.shape for name, x in leaves.items()}


def source(folder, kind="hugging_face", arrays=None, tokens=None, config=None, **options):
    """A release, of whose configuration the test says what is not as in SIZES."""
    sizes = dict(n_embd=128, n_head=2, n_layer=2)
    known = {
        "hparams.json": sizes | dict(n_vocab=261, n_ctx=12),
        "config.json": sizes | dict(vocab_size=261, n_positions=12),
        "params_shapes.json": {},
    }
    where = folder / gpt.KINDS[kind].marker_file
    where.write_text(json.dumps(known[where.name] | (config or {})))
    tokens = tokens or vocabulary(kind)
    tokens.write(*(folder / name for name in tokens.published))
    return Source(folder, kind, arrays or {}, options)


def run(kind: str, tokens=None, **fields):
    config = ConfigDict(dict(objective=dict(name="clm")))
    return build_run(
        pathlib.Path("runs/x"), config, tokens or vocabulary(kind), backbone(kind, **fields)
    )
