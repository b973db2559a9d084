"""Releases that transformers wrote, with what it computes of a few rows, imported as runs."""

import pathlib

import jax
import numpy as np

from finetune.inputs.rows import RowBuilder
from modules.masks import Mask
from pretrain.conversion import exporter
from pretrain.formats import safetensors
from pretrain.inference.text_format import format_name, load_format
from pretrain.inference.trained_run import load_backbone_params, load_head_params, load_run
from pretrain.runtime.json_files import read_json
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


def assert_goes_back(name, workdir, folder, skipped=0):
    """Asserts that an export has the arrays and the fields that came in.

    Args:
        skipped: rows of the positions that nothing reads.
    """
    exporter.export_weights(workdir, folder, lambda _: None)
    with (
        safetensors.open_arrays(FIXTURES / name) as one,
        safetensors.open_arrays(folder) as other,
    ):
        assert one.specs.keys() == other.specs.keys()
        for array in one.specs:
            first = skipped if array.endswith("position_embeddings.weight") else 0
            np.testing.assert_array_equal(one.read(array)[first:], other.read(array)[first:])
    ours, theirs = (read_json(x / "config.json") for x in (folder, FIXTURES / name))
    shared = [field for field in ours if field in theirs]
    assert {x: ours[x] for x in shared} == {x: theirs[x] for x in shared}


def assert_same_rows(name, workdir):
    """Asserts that pairs of texts are framed as transformers does."""
    theirs = read_outputs(name)
    rows = frame_pairs(workdir, theirs["tokens"].shape[1])
    np.testing.assert_array_equal(rows["valid_BL"], theirs["valid"])
    is_real = rows["valid_BL"]
    for ours, given in (("tokens_BL", "tokens"), ("segments_BL", "segments")):
        assert (ours in rows) == (given in theirs)
        if ours in rows:
            np.testing.assert_array_equal(rows[ours][is_real], theirs[given][is_real])


def read_outputs(name):
    return dict(np.load(FIXTURES / name / "outputs.npz"))


def frame_pairs(workdir, L):
    """Frames the pairs of texts as fine-tuning does: the tokens of each."""
    run = load_run(workdir)
    inputs = RowBuilder(
        load_format(format_name(run.config)), run.tokenizer, L, S=getattr(run.backbone, "S", None)
    )
    firsts, seconds = inputs.tokens(PAIRS), inputs.tokens(PAIRS[::-1])
    return inputs.arrays([inputs.row(pair) for pair in zip(firsts, seconds, strict=True)])
