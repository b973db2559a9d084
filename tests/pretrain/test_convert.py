"""Weights come in whole or not at all, and go out as they came."""

import json
import pathlib
import shutil
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pretrain.checkpoint import integrity
from pretrain.conversion import config_fields, exporter, importer
from pretrain.data.tokenizers import wordpiece
from pretrain.distributed.sharding import Layout, make_mesh
from pretrain.formats import npz, safetensors
from pretrain.inference.embedder import Embedder
from pretrain.inference.layer_selection import chosen
from pretrain.inference.trained_run import backbone_params, opened
from pretrain.runtime.errors import UserError
from tests.support import bert_release as cases
from tests.support.array_mapping import specs

ROOT = pathlib.Path(__file__).parents[2]


def import_release(source, workdir, **options):
    said = []
    importer.import_weights(source, workdir, said.append, **options)
    return said


def leaves(workdir):
    """Shape, dtype and checksum of every parameter, as its record has them."""
    return integrity.read_record(workdir / "checkpoints" / "0")["leaves"]


@pytest.fixture(scope="module")
def release(tmp_path_factory):
    """The golden BERT as an .npz release."""
    folder = tmp_path_factory.mktemp("release") / "bert"
    cases.golden(folder)
    return folder


@pytest.fixture(scope="module")
def workdir(release, tmp_path_factory):
    """The run that came of it."""
    workdir = tmp_path_factory.mktemp("runs") / "bert"
    import_release(release, workdir)
    return workdir


@pytest.fixture
def changed(release, tmp_path):
    """A copy of the release, to break."""
    return pathlib.Path(shutil.copytree(release, tmp_path / "changed"))


def test_what_came_in_is_what_the_golden_test_computes_with(workdir, tmp_path):
    _, expected = cases.golden(tmp_path / "again")
    params = integrity.flatten({"backbone": backbone_params(opened(workdir), layout())})
    assert params.keys() == expected.keys()
    for name, x in expected.items():
        np.testing.assert_array_equal(params[name], x)


def layout():
    return Layout(make_mesh(devices=jax.devices()[:1]))


def test_the_run_is_one_that_embeds(workdir):
    embedder = Embedder(opened(workdir), layout(), chosen("top", count=4), pool="first")
    [found] = embedder([(0, ["a bad cab"])])
    assert found.tokens[0] == "a"
    assert np.isfinite(found.vectors).all()


def test_the_manifest_names_origin_hashes_and_what_was_left_out(release, workdir):
    manifest = json.loads((workdir / "origin.json").read_text())
    assert (manifest["system"], manifest["kind"]) == ("bert", "npz")
    assert manifest["files"].keys() == {"bert_config.json", "model.npz", "vocab.txt"}
    assert all(len(digest) == 64 for digest in manifest["files"].values())
    assert manifest["folder"] == str(release)
    switches = manifest["switches"]
    assert (switches["activation"], switches["epsilon"]) == ("gelu", 1e-12)
    assert switches["padding"] == "right"


def test_padded_tables_and_added_pieces_go_out_and_in_again(workdir, tmp_path, monkeypatch):
    monkeypatch.setattr(config_fields, "PADDED_TO", [4])
    padded = pathlib.Path(shutil.copytree(workdir, tmp_path / "padded"))
    own = opened(workdir).tokenizer
    tokens = wordpiece.Tokenizer(
        [*own.pieces[:-3], "cab19"],
        handle_chinese_chars=False,
        base=own.V - 3,
        added=[dict(content="cab19")],
    )
    tokens.save(padded / "tokenizer")
    said = []
    exporter.export_weights(padded, tmp_path / "out", lambda _: None)
    importer.import_weights(tmp_path / "out", tmp_path / "again", said.append)
    again = opened(tmp_path / "again")
    assert (
        said[0] == f"rows {own.V - 2} to {own.V - 1} of the embedding are padding, and no piece's"
    )
    assert leaves(again.workdir) == leaves(workdir)
    assert (again.config.model.V, again.tokenizer.V) == (own.V, own.V - 2)
    text = ["a CAB19 b\u4e2d" + "a" * 150]
    np.testing.assert_array_equal(again.tokenizer.encode(text)[0], tokens.encode(text)[0])


@pytest.mark.parametrize("kind", ["npz", "hugging_face"])
def test_out_and_in_again_changes_no_bit(workdir, tmp_path, kind):
    out, again = tmp_path / "out", tmp_path / "again"
    exporter.export_weights(workdir, out, lambda _: None, kind=kind)
    import_release(out, again)
    assert leaves(again) == leaves(workdir)
    assert opened(again).tokenizer.pieces == opened(workdir).tokenizer.pieces
    assert opened(again).config.objective == opened(workdir).config.objective


def test_what_goes_out_as_it_came_is_the_same_to_the_bit(release, workdir, tmp_path):
    exporter.export_weights(workdir, tmp_path / "out", lambda _: None, kind="npz")
    with (
        npz.open_arrays(release / "model.npz") as one,
        npz.open_arrays(tmp_path / "out/model.npz") as other,
    ):
        assert one.specs.keys() == other.specs.keys()
        for name in one.specs:
            np.testing.assert_array_equal(one.read(name), other.read(name))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_goes_out_when_asked_and_then_stays(workdir, tmp_path, dtype):
    exporter.export_weights(workdir, tmp_path / "half", lambda _: None, dtype=dtype)
    with safetensors.open_arrays(tmp_path / "half") as arrays:
        assert {spec.dtype for spec in arrays.specs.values()} == {jnp.dtype(dtype)}
        half = arrays.read("bert.pooler.dense.weight")
    pool_DD = backbone_params(opened(workdir), layout())["pool_DD"]
    np.testing.assert_array_equal(half, np.asarray(pool_DD).astype(dtype).T)
    import_release(tmp_path / "half", tmp_path / "run")
    assert {leaf["dtype"] for leaf in leaves(tmp_path / "run").values()} == {"float32"}
    exporter.export_weights(tmp_path / "run", tmp_path / "back", lambda _: None)
    first, second = (
        (tmp_path / name / "model.safetensors").read_bytes() for name in ("half", "back")
    )
    assert first == second


def test_a_number_too_large_for_half_precision_is_not_made_infinite(changed, tmp_path):
    rewrite(changed, lambda arrays: arrays["bert/pooler/dense/bias"].fill(1e6))
    import_release(changed, tmp_path / "run")
    with pytest.raises(UserError, match=r"pooler.dense.bias does not fit in float16"):
        exporter.export_weights(tmp_path / "run", tmp_path / "out", print, dtype="float16")
    assert not (tmp_path / "out").exists()


def test_a_folder_without_permission_is_not_said_to_hold_nothing(release, monkeypatch):
    def denied(path):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(importer.os, "listdir", denied)
    with pytest.raises(UserError, match=f"{release}: cannot be read: Permission denied"):
        importer.detect_release(release)


def test_large_folders_are_in_shards(workdir, tmp_path, monkeypatch):
    monkeypatch.setattr(safetensors.write, "__defaults__", (4096,))
    exporter.export_weights(workdir, tmp_path / "out", lambda _: None)
    assert len(list((tmp_path / "out").glob("model-*.safetensors"))) > 2
    import_release(tmp_path / "out", tmp_path / "again")
    assert leaves(tmp_path / "again") == leaves(workdir)


def rewrite(folder, change):
    """Changes the arrays of a release in place."""
    with npz.open_arrays(folder / "model.npz") as file:
        arrays = {name: file.read(name).copy() for name in file.specs}
    change(arrays)
    npz.write(folder / "model.npz", specs(arrays), arrays.items())


BROKEN = {
    "one is left over": (
        lambda x: x.update(classifier=np.zeros(3, np.float32)),
        r"classifier: \(3,\) is unexpected",
    ),
    "one is missing": (
        lambda x: x.pop("bert/encoder/layer_1/output/dense/bias"),
        "bert/encoder/layer_1/output/dense/bias: missing",
    ),
    "one is larger": (
        lambda x: x.update({"bert/pooler/dense/bias": np.zeros(9, np.float32)}),
        r"bert/pooler/dense/bias: \(9,\) where \(\d+,\) belongs",
    ),
    "one is of doubles": (
        lambda x: x.update({"bert/pooler/dense/bias": x["bert/pooler/dense/bias"].astype(float)}),
        "bert/pooler/dense/bias: is float64",
    ),
    "one is not finite": (
        lambda x: x["bert/pooler/dense/bias"].fill(np.nan),
        "pool_bias_D is not finite",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_weights_that_are_not_what_they_should_be_make_no_run(changed, tmp_path, name):
    change, reason = BROKEN[name]
    rewrite(changed, change)
    with pytest.raises(UserError, match=reason):
        import_release(changed, tmp_path / "run")
    assert not (tmp_path / "run" / "config.json").exists()


def test_an_array_can_be_left_out_by_name(changed, tmp_path):
    rewrite(changed, BROKEN["one is left over"][0])
    said = import_release(changed, tmp_path / "run", ignore="classifier.*")
    assert "ignored, left out as asked: classifier (1)" in said


def test_a_tied_copy_must_be_one(workdir, tmp_path):
    exporter.export_weights(workdir, tmp_path / "out", lambda _: None)
    with safetensors.open_arrays(tmp_path / "out") as file:
        arrays = {name: file.read(name) for name in file.specs}
    arrays["cls.predictions.decoder.weight"] = arrays["bert.embeddings.word_embeddings.weight"]
    replace(tmp_path / "out", arrays)
    assert any("a copy of" in line for line in import_release(tmp_path / "out", tmp_path / "run"))
    arrays["cls.predictions.decoder.weight"] = arrays["cls.predictions.decoder.weight"] + 1
    replace(tmp_path / "out", arrays)
    with pytest.raises(UserError, match=r"should repeat bert\.embeddings\.word_embeddings\.weight"):
        import_release(tmp_path / "out", tmp_path / "other")


def replace(folder, arrays):
    (folder / "model.safetensors").unlink()
    safetensors.write(folder, specs(arrays), arrays.items())


def test_every_array_is_in_the_report(release, workdir, tmp_path):
    said = import_release(release, tmp_path / "run")
    assert said[-1].endswith("0 are left out, 0 unaccounted for")
    with npz.open_arrays(release / "model.npz") as file:
        assert f"{len(file.specs)} arrays became {len(leaves(workdir))} parameters" in said[-1]
    assert any(line.startswith("next_DC [") and "<- cls/seq" in line for line in said)


def test_an_import_that_broke_off_is_made_anew(release, workdir, tmp_path, monkeypatch):
    assembled, count = importer.assemble, []

    def fails(*given):
        count.append(None)
        if len(count) == 9:
            raise KeyboardInterrupt
        return assembled(*given)

    monkeypatch.setattr(importer, "assemble", fails)
    with pytest.raises(KeyboardInterrupt):
        import_release(release, tmp_path / "run")
    with pytest.raises(UserError, match="holds no run"):
        opened(tmp_path / "run")
    import_release(release, tmp_path / "run")
    assert leaves(tmp_path / "run") == leaves(workdir)
    with pytest.raises(UserError, match="holds a run already"):
        import_release(release, tmp_path / "run")


NO_RELEASE = {
    "does not exist": lambda folder: folder.rename(folder.with_name("other")),
    "holds no weights of a kind that is known": lambda folder: (folder / "model.npz").unlink(),
    "bert_config.json: hidden_act is 'silu'": lambda folder: configure(folder, hidden_act="silu"),
    "belong together": lambda folder: (folder / "vocab.txt").write_text("\n".join(cases.PIECES)),
    r"has no vocab\.txt": lambda folder: (folder / "vocab.txt").unlink(),
    "is not JSON": lambda folder: (folder / "bert_config.json").write_text("{"),
    "model.npz": lambda folder: (folder / "model.npz").write_bytes(b"PK" + bytes(100)),
}


def test_a_pickle_is_refused_and_not_opened(workdir, tmp_path):
    exporter.export_weights(workdir, tmp_path / "out", lambda _: None)
    (tmp_path / "out" / "model.safetensors").rename(tmp_path / "out" / "pytorch_model.bin")
    with pytest.raises(UserError, match="pickle"):
        import_release(tmp_path / "out", tmp_path / "run")


def configure(folder, **fields):
    path = folder / "bert_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


@pytest.mark.parametrize("reason", NO_RELEASE)
def test_a_folder_that_is_no_release_is_refused_by_what_is_wrong(changed, tmp_path, reason):
    NO_RELEASE[reason](changed)
    with pytest.raises(UserError, match=reason):
        import_release(changed, tmp_path / "run")


def test_a_run_that_theirs_cannot_compute_is_not_written(workdir, tmp_path):
    other = pathlib.Path(shutil.copytree(workdir, tmp_path / "other"))
    config = json.loads((other / "config.json").read_text())
    config["model"]["normed_embedding"] = False
    (other / "config.json").write_text(json.dumps(config))
    with pytest.raises(UserError, match="normed_embedding=False: theirs can only be True"):
        exporter.export_weights(other, tmp_path / "out", print)
    with pytest.raises(UserError, match="can be written as npz, hugging_face"):
        exporter.export_weights(workdir, tmp_path / "out", print, kind="tensorflow")
    assert not (tmp_path / "out").exists()


def command(*words):
    words = [sys.executable, "-m", "pretrain.convert", *map(str, words)]
    return subprocess.run(words, cwd=ROOT, capture_output=True, text=True)


def test_the_command_imports_and_exports(release, tmp_path):
    done = command(f"--source={release}", f"--workdir={tmp_path}/run")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1].endswith("0 are left out, 0 unaccounted for")
    done = command(f"--workdir={tmp_path}/run", f"--out={tmp_path}/out", "--dtype=bfloat16")
    assert "numbers, bfloat16, in " in done.stdout
    assert (tmp_path / "out" / "model.safetensors").exists()
    done = command(f"--workdir={tmp_path}/run", f"--out={tmp_path}/out")
    assert done.returncode == 1
    assert done.stderr.startswith("error: ")
    assert "is there already" in done.stderr
