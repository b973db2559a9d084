"""The golden BERT as a release: a folder as it is published, with a vocabulary made up."""

import json
import pathlib
import shutil

import numpy as np

from pretrain.checkpoint import named_leaves, verification
from pretrain.conversion import importer
from pretrain.conversion.systems import Source
from pretrain.data.tokenizers import wordpiece
from pretrain.formats import npz
from tests.modules.backbones.test_transformer_golden import load
from tests.support import transformer_inputs as cases
from tests.support.array_mapping import specs

PIECES = [*wordpiece.SPECIAL.values(), *"abcdefghijklmnopqrstuvwxyz", *map("##{}".format, "abcde")]

WHOLE = {  # a tokenizer.json
    "model": {"type": "WordPiece", "vocab": {piece: i for i, piece in enumerate(PIECES)}},
    "pre_tokenizer": {"type": "BertPreTokenizer"},
}

CONFIG = dict(
    model_type="bert",
    vocab_size=36,
    hidden_size=16,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=24,
    max_position_embeddings=12,
    type_vocab_size=2,
    hidden_act="gelu",
    layer_norm_eps=1e-6,
)
HEADS = ["cls.predictions.bias", "cls.seq_relationship.bias", "bert.pooler.dense.weight"]


def source(folder, kind, arrays, **options):
    """Of arrays in memory, beside the files of a folder."""
    return Source(folder, kind, specs(arrays), options)


def golden(folder):
    """Writes the release to `folder`: (its arrays, ours of backbone and head by name)."""
    flags, weights, *_ = load("bert/bert_tiny")
    folder.mkdir(exist_ok=True)
    (folder / "bert_config.json").write_text(json.dumps(flags))
    pieces = PIECES + [f"piece{n}" for n in range(flags["vocab_size"])]
    wordpiece.write_vocabulary(pieces[: flags["vocab_size"]], folder / "vocab.txt")
    npz.write(folder / "model.npz", specs(weights), weights.items())
    whole = cases.bert(weights, flags["num_attention_heads"])
    head = {name: whole.pop(name) for name in [*whole] if name.startswith(("transform", "bias_V"))}
    ours = named_leaves.flatten({"backbone": whole, "head": head})
    return weights, {name: np.asarray(x) for name, x in ours.items()}


def hugging_face(folder, names=HEADS, options=None, files=(), **fields):
    """Writes a release of Hugging Face's kind without weights; returns its source."""
    (folder / "config.json").write_text(json.dumps(CONFIG | fields))
    (folder / "vocab.txt").write_text("".join(f"{x}\n" for x in PIECES))
    for name, content in files:
        (folder / name).write_text(json.dumps(content))
    arrays = {name: np.zeros(1, np.float32) for name in names}
    return source(folder, "hugging_face", arrays, **(options or {}))


def rewrite(folder, change):
    """Changes the arrays of a release in place."""
    with npz.open_arrays(folder / "model.npz") as file:
        arrays = {name: file.read(name).copy() for name in file.specs}
    change(arrays)
    npz.write(folder / "model.npz", specs(arrays), arrays.items())


def copy(folder, place):
    """Copies a release or a run, to be broken; returns its place."""
    return pathlib.Path(shutil.copytree(folder, place))


def import_release(folder, workdir, **options):
    """Imports a release; returns the lines that it says."""
    lines = []
    importer.import_weights(folder, workdir, lines.append, **options)
    return lines


def leaves(workdir):
    """Shape, dtype and checksum of every parameter, as its record has them."""
    return verification.read_record(workdir / "checkpoints" / "0")["leaves"]
