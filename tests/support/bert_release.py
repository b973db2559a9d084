"""The golden BERT as a release: a folder as it is published, with a vocabulary made up."""

import json

import numpy as np

from pretrain.checkpoint import integrity
from pretrain.conversion.systems import Source
from pretrain.data.tokenizers import wordpiece
from pretrain.formats import npz
from tests.modules.backbones.test_transformer_golden import load
from tests.support import transformer_inputs as cases
from tests.support.array_mapping import specs

PIECES = [*wordpiece.SPECIAL.values(), *"abcdefghijklmnopqrstuvwxyz", *map("##{}".format, "abcde")]


def source(folder, kind, arrays, **options):
    """Of arrays in memory, beside the files of a folder."""
    return Source(folder, kind, specs(arrays), options)


def golden(folder):
    """Writes the release to `folder`: (its arrays, ours of the backbone by name)."""
    flags, weights, *_ = load("bert/bert_tiny")
    folder.mkdir(exist_ok=True)
    (folder / "bert_config.json").write_text(json.dumps(flags))
    pieces = PIECES + [f"piece{n}" for n in range(flags["vocab_size"])]
    wordpiece.write(pieces[: flags["vocab_size"]], folder / "vocab.txt")
    npz.write(folder / "model.npz", specs(weights), weights.items())
    ours = integrity.flatten({"backbone": cases.bert(weights, flags["num_attention_heads"])})
    return weights, {name: np.asarray(x) for name, x in ours.items()}
