"""The AWD-LSTM's releases are read as they are, and written so."""

import dataclasses

import jax
import numpy as np
import pytest

from pretrain.conversion import exporter, importer
from pretrain.conversion.systems import awd_lstm
from pretrain.data.tokenizers import registry
from pretrain.distributed.sharding import Layout, make_mesh
from pretrain.formats import safetensors
from pretrain.inference import trained_run
from pretrain.runtime.errors import UserError
from tests.support import awd_lstm_original
from tests.support.array_mapping import specs

V, D, U, N = 11, 4, 5, 3
FASTAI = ["xxunk", "xxpad", "xxbos", *(f"word{i}" for i in range(V - 3))]
SALESFORCE = ["<eos>", "=", "word1", "<unk>", *(f"word{i}" for i in range(2, V - 2))]
# What holds the state's weights, and what the other weights of a layer.
NAMES = {
    ("fastai", "raw"): ("0.", "1.", "weight_hh_l0_raw", "module."),
    ("salesforce", "raw"): ("", "", "module.weight_hh_l0_raw", "module."),
    ("salesforce", "module"): ("", "", "module.weight_hh_l0", "module."),
    ("salesforce", "plain"): ("", "", "weight_hh_l0", ""),
}


def draw_state(kind, form):
    """Weights by their names, those of the softmax and of dropout again."""
    encoder, decoder, state, other = NAMES[kind, form]
    rng = np.random.default_rng(0)
    draw = lambda *shape: rng.normal(size=shape).astype(np.float32)  # noqa: E731
    arrays = {f"{encoder}encoder.weight": draw(V, D), f"{decoder}decoder.bias": draw(V)}
    arrays[f"{decoder}decoder.weight"] = arrays[f"{encoder}encoder.weight"]
    for n, (into, out) in enumerate([(D, U), (U, U), (U, D)]):
        layer = f"{encoder}rnns.{n}."
        arrays[layer + state] = draw(4 * out, out)
        arrays[f"{layer}{other}weight_ih_l0"] = draw(4 * out, into)
        for bias in ("bias_ih_l0", "bias_hh_l0"):
            arrays[f"{layer}{other}{bias}"] = draw(4 * out)
        if kind == "fastai":
            arrays[f"{layer}module.weight_hh_l0"] = draw(4 * out, out)  # as it was dropped out
    if kind == "fastai":
        arrays[f"{encoder}encoder_dp.emb.weight"] = arrays[f"{encoder}encoder.weight"]
    return arrays


def write_release(folder, kind, form="raw", vocabulary=None):
    folder.mkdir()
    arrays = draw_state(kind, form)
    safetensors.write(folder, specs(arrays), arrays.items())
    pieces = vocabulary or {"fastai": FASTAI, "salesforce": SALESFORCE}[kind]
    (folder / awd_lstm.VOCABULARIES[kind]).write_text("\n".join(pieces) + "\n")
    return arrays


def golden_names(arrays, kind, form):
    """The weights under the names of the golden file."""
    encoder, decoder, state, other = NAMES[kind, form]
    named = {
        f"w/{x}": arrays[y + x]
        for x, y in {"encoder.weight": encoder, "decoder.bias": decoder}.items()
    }
    for n in range(N):
        layer = f"{encoder}rnns.{n}."
        named[f"w/rnns.{n}.module.weight_hh_l0"] = arrays[layer + state]
        for name in ("weight_ih_l0", "bias_ih_l0", "bias_hh_l0"):
            named[f"w/rnns.{n}.module.{name}"] = arrays[f"{layer}{other}{name}"]
    return named


@pytest.mark.parametrize(("kind", "form"), NAMES)
def test_imported_weights_are_arranged_as_the_golden_ones(tmp_path, kind, form):
    arrays = write_release(tmp_path / "release", kind, form)
    lines = []
    importer.import_weights(tmp_path / "release", tmp_path / "run", lines.append)
    assert any(" 0 unaccounted for" in line for line in lines)
    run = trained_run.load_run(tmp_path / "run")
    layout = Layout(make_mesh())
    params, _ = trained_run.load_backbone_params(run, layout)
    expected = awd_lstm_original.arrange_weights(golden_names(arrays, kind, form), "w")
    found = params, trained_run.load_head_params(run, layout)
    jax.tree.map(np.testing.assert_array_equal, found, expected)


@pytest.mark.parametrize("kind", awd_lstm.KINDS)
def test_what_is_written_has_the_release_s_arrays_each_once(tmp_path, kind):
    arrays = write_release(tmp_path / "release", kind)
    importer.import_weights(tmp_path / "release", tmp_path / "run", lambda _: None)
    exporter.export_weights(tmp_path / "run", tmp_path / "out", lambda _: None, kind=kind)
    with safetensors.open_arrays(tmp_path / "out") as file:
        assert len(file.specs) == 2 + 4 * N
        for name in file.specs:
            np.testing.assert_array_equal(file.read(name), arrays[name], err_msg=name)


def test_marks_are_the_vocabulary_s_own(tmp_path):
    for kind, pieces in (("fastai", FASTAI), ("salesforce", SALESFORCE)):
        write_release(tmp_path / kind, kind)
        importer.import_weights(tmp_path / kind, tmp_path / f"{kind}-run", lambda _: None)
        tokens = registry.load(tmp_path / f"{kind}-run" / "tokenizer")
        unknown, end = ("xxunk", "xxbos") if kind == "fastai" else ("<unk>", "<eos>")
        assert tokens.special["unk"] == pieces.index(unknown)
        assert tokens.special["eod"] == tokens.special["eos"] == pieces.index(end)
        [ids] = tokens.encode(["word3 what word1"])
        assert [pieces[i] for i in ids][:3] == ["word3", unknown, "word1"]


BAD = {
    "no mark": (["a", "b", *(f"word{i}" for i in range(V - 2))], "there is no xxbos and xxunk or"),
    "repeated": (["xxbos", "xxunk", "a", "a", *"bcdefgh"], "line 4 repeats line 3"),
    "too few": (["xxbos", "xxunk", "a"], "has 3 pieces, but the weights have 11 rows"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_vocabulary_that_does_not_fit_is_refused(tmp_path, name):
    pieces, reason = BAD[name]
    write_release(tmp_path / "release", "fastai", vocabulary=pieces)
    with pytest.raises(UserError, match=reason):
        importer.import_weights(tmp_path / "release", tmp_path / "run", lambda _: None)


def test_arrays_of_another_network_are_refused(tmp_path):
    (folder := tmp_path / "release").mkdir()
    arrays = {"encoder.bias": np.zeros(3, np.float32)}
    safetensors.write(folder, specs(arrays), arrays.items())
    (folder / "idx2word.txt").write_text("<eos>\n<unk>\n")
    with pytest.raises(UserError, match=r"has no encoder\.weight and rnns\.0\.\* of an AWD-LSTM"):
        importer.import_weights(folder, tmp_path / "run", lambda _: None)


def test_an_untied_softmax_has_no_place(tmp_path):
    write_release(tmp_path / "release", "fastai")
    importer.import_weights(tmp_path / "release", tmp_path / "run", lambda _: None)
    run = trained_run.load_run(tmp_path / "run")
    run = run._replace(head=run.head.clone(tied=False))
    with pytest.raises(UserError, match=r"head\.tied=False: theirs can only be True"):
        awd_lstm.write_config_and_tokenizer(run, tmp_path, "fastai", "float32")


def test_a_split_that_no_file_of_theirs_says_is_told(tmp_path):
    write_release(tmp_path / "release", "fastai")
    importer.import_weights(tmp_path / "release", tmp_path / "run", lambda _: None)
    run = trained_run.load_run(tmp_path / "run")
    assert len(awd_lstm.advise(run, "fastai")) == 1
    tokenizer = dataclasses.replace(run.tokenizer, split="punctuation", lower=True)
    *_, line = awd_lstm.advise(run._replace(tokenizer=tokenizer), "fastai")
    assert "split='punctuation', lower=True" in line
