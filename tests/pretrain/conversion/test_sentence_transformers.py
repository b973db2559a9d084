"""A folder for sentence-transformers gives the vectors that `pretrain.embed` writes."""

import functools

import numpy as np
import pytest

from pretrain.conversion import exporter
from pretrain.conversion.sentence_transformers import SentenceForm, check_form
from pretrain.formats import safetensors
from pretrain.inference.embedder import Embedder
from pretrain.inference.layer_selection import SENTENCE_POOLS, Choice, parse_pool
from pretrain.inference.trained_run import load_run
from pretrain.runtime.errors import UserError
from pretrain.runtime.json_files import read_json
from tests.support.tiny_models import layout
from tests.support.xlnet_inputs import off

pytest_plugins = ["tests.support.tiny_models"]
TEXTS = ["a b c d", "bad", "", "face cab", "x y z"]


@pytest.fixture(scope="module")
def embed():
    @functools.cache
    def embed(workdir, form):
        """The vectors of all texts, by the embedder."""
        run = load_run(workdir)
        choice, kind = parse_pool(form.pool, count=run.backbone.N + 1)
        return read(run, choice, pool=kind, normalize=form.normalize)

    return embed


def read(run, choice, **options):
    sentences = Embedder(run, layout(), choice, tokens=64, **options)([(0, TEXTS)])
    ordered = sorted(sentences, key=lambda x: x.number)
    return [x.vectors for x in ordered]


def export(workdir, folder, form, **options):
    exporter.export_weights(workdir, folder, lambda _: None, sentences=form, **options)
    return folder


def arrays_of(folder):
    if not (folder / "model.safetensors").exists():
        return {}
    with safetensors.open_arrays(folder) as arrays:
        return {name: arrays.read(name) for name in arrays.specs}


def follow_steps(folder, h_NLD):
    """What modules.json says is done with the states of one sentence."""
    x_LD = h_NLD[-1]
    for step in read_json(folder / "modules.json")[1:]:
        place, kind = folder / step["path"], step["type"].rpartition(".")[2]
        arrays = arrays_of(place)
        config = read_json(place / "config.json") if (place / "config.json").exists() else {}
        if kind == "WeightedLayerPooling":
            assert read_json(folder / "config.json")["output_hidden_states"]
            x_LD = np.average(h_NLD[config["layer_start"] :], 0, arrays["layer_weights"])
        elif kind == "Pooling":
            modes = {"mean_tokens": x_LD.mean(0), "cls_token": x_LD[0], "lasttoken": x_LD[-1]}
            [mode] = [name for name, value in config.items() if name[:7] == "pooling" and value]
            x_D = modes[mode.removeprefix("pooling_mode_")]
        elif kind == "Dense":
            assert config["activation_function"].endswith(".Tanh")
            x_D = np.tanh(arrays["linear.weight"] @ x_D + arrays["linear.bias"])
        else:
            x_D = x_D / np.linalg.norm(x_D)
    return x_D


@pytest.mark.parametrize("pool", SENTENCE_POOLS)
def test_the_steps_give_the_vectors_of_the_embedder(run, embed, tmp_path, pool):
    form = SentenceForm(pool, normalize=pool in ("mean", "pooler"))
    folder = export(run, tmp_path / "out", form)
    loaded = load_run(run)
    states = read(loaded, Choice(tuple(range(loaded.backbone.N + 1))), marks=True)
    for h_NLD, expected_D in zip(states, embed(run, form), strict=True):
        assert off(follow_steps(folder, h_NLD), expected_D) < 1e-5
    longest = read_json(folder / "sentence_bert_config.json")["max_seq_length"]
    assert longest == loaded.backbone.L


def test_what_it_would_pool_otherwise_is_refused(run, tmp_path):
    bert = load_run(run)
    with pytest.raises(UserError, match="loads --kind=hugging_face"):
        export(run, tmp_path / "out", SentenceForm("mean"), kind="npz")
    padded_in_front = bert._replace(config=bert.config.copy_and_resolve_references())
    padded_in_front.config.text_format = "xlnet"
    with pytest.raises(UserError, match=r"--pool=first: .* this system pads rows in front"):
        check_form(padded_in_front, SentenceForm("first"), "xlnet")
    check_form(padded_in_front, SentenceForm("mean"), "xlnet")
    poolerless = bert._replace(backbone=bert.backbone.clone(pooler=False))
    with pytest.raises(UserError, match="no layer for the first position"):
        check_form(poolerless, SentenceForm("pooler"), "bert")
