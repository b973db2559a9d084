"""Releases that transformers wrote, with what it computes of a few rows, imported as runs."""

import pathlib

import jax
import numpy as np

from modules.masks import Mask
from pretrain.inference.trained_run import load_backbone_params, load_head_params, load_run
from tests.support.bert_release import import_release
from tests.support.compiler import quick_jit
from tests.support.tiny_models import layout
from tests.support.xlnet_inputs import off

FIXTURES = pathlib.Path(__file__).parents[1] / "fixtures" / "releases"
PAIRS = ["the ab the", "a", " the theab éa"]  # each with the one that is as far from the end


def measure_differences(name, workdir):
    """Imports a release; returns how far states and logits are from those of transformers."""
    import_release(FIXTURES / name, workdir)
    run, theirs = load_run(workdir), read_outputs(name)
    params = load_backbone_params(run, layout())[0], load_head_params(run, layout())

    @quick_jit
    def forward(params, head_params):
        valid_BL = theirs["valid"] == 1
        fields = dict(mask=Mask(valid_BL=valid_BL), segments_BL=theirs.get("segments"))
        bound = run.backbone.bind({"params": params})
        h_BLD = bound(theirs["tokens"], **fields, train=False).h
        head = run.head.bind({"params": head_params})
        return h_BLD, head.logits(h_BLD, bound.table())

    with jax.default_matmul_precision("highest"):
        ours = forward(*params)
    is_real = theirs["valid"] == 1
    return [
        off(x[is_real], theirs[y][is_real]) for x, y in zip(ours, ("states", "logits"), strict=True)
    ]


def read_outputs(name):
    return dict(np.load(FIXTURES / name / "outputs.npz"))


def frame_pairs(workdir, L):
    """Frames the pairs of texts as fine-tuning does: the tokens of each."""
    from finetune.inputs.rows import RowBuilder
    from pretrain.inference.text_format import format_name, load_format

    run = load_run(workdir)
    inputs = RowBuilder(
        load_format(format_name(run.config)), run.tokenizer, L, S=getattr(run.backbone, "S", None)
    )
    firsts, seconds = inputs.tokens(PAIRS), inputs.tokens(PAIRS[::-1])
    return inputs.arrays([inputs.row(pair) for pair in zip(firsts, seconds, strict=True)])
