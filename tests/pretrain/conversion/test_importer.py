"""A release becomes a whole run or none."""

import json
import shutil

import numpy as np
import pytest

from pretrain.checkpoint import named_leaves, streaming_writer
from pretrain.conversion import exporter, importer
from pretrain.conversion.systems import bert
from pretrain.formats import npz
from pretrain.inference.embedder import Embedder
from pretrain.inference.layer_selection import parse_layers
from pretrain.inference.trained_run import load_backbone_params, load_head_params, load_run
from pretrain.runtime.errors import UserError
from tests.support import bert_release
from tests.support import bert_release as cases
from tests.support.bert_release import import_release, leaves
from tests.support.failing_disk import refused
from tests.support.tiny_models import layout


def test_what_came_in_is_what_the_golden_test_computes_with(run, tmp_path):
    _, expected = cases.golden(tmp_path / "again")
    loaded = load_run(run)
    backbone, _ = load_backbone_params(loaded, layout())
    params = named_leaves.flatten(dict(backbone=backbone, head=load_head_params(loaded, layout())))
    assert params.keys() == expected.keys()
    for name, x in expected.items():
        np.testing.assert_array_equal(params[name], x)


def test_the_run_is_one_that_embeds(run):
    embedder = Embedder(load_run(run), layout(), parse_layers("top", count=4), pool="first")
    [found] = embedder([(0, ["a bad cab"])])
    assert found.tokens[0] == "a"
    assert np.isfinite(found.vectors).all()


def test_the_manifest_names_origin_hashes_and_what_was_left_out(release, run):
    manifest = json.loads((run / "origin.json").read_text())
    assert (manifest["system"], manifest["kind"]) == ("bert", "npz")
    assert manifest["files"].keys() == {"bert_config.json", "model.npz", "vocab.txt"}
    assert all(len(digest) == 64 for digest in manifest["files"].values())
    assert manifest["folder"] == str(release)
    switches = manifest["switches"]
    assert (switches["activation"], switches["epsilon"]) == ("gelu", 1e-12)
    assert switches["padding"] == "right"


def test_a_folder_without_permission_is_not_said_to_hold_nothing(release, monkeypatch):
    def denied(path):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(importer.os, "listdir", denied)
    with pytest.raises(UserError, match=f"{release}: cannot be read: Permission denied"):
        importer.detect_release(release)


def test_every_array_is_in_the_report(release, run, tmp_path):
    said = import_release(release, tmp_path / "run")
    assert said[-1].endswith("0 are left out, 0 unaccounted for")
    with npz.open_arrays(release / "model.npz") as file:
        assert f"{len(file.specs)} arrays became {len(leaves(run))} parameters" in said[-1]
    assert any(line.startswith("next_DC [") and "<- cls/seq" in line for line in said)


def test_an_import_that_broke_off_is_made_anew(release, run, tmp_path, monkeypatch):
    assembled, count = importer.assemble, []

    def fails(*given):
        count.append(None)
        if len(count) == 9:
            raise KeyboardInterrupt
        return assembled(*given)

    monkeypatch.setattr(importer, "assemble", fails)
    monkeypatch.setattr(streaming_writer, "BATCH", 0)  # so that some are written by then
    with pytest.raises(KeyboardInterrupt):
        import_release(release, tmp_path / "run")
    with pytest.raises(UserError, match="holds no run"):
        load_run(tmp_path / "run")
    import_release(release, tmp_path / "run")
    assert leaves(tmp_path / "run") == leaves(run)
    with pytest.raises(UserError, match="holds a run already"):
        import_release(release, tmp_path / "run")


NO_RELEASE = {
    "does not exist; a model of the Hub is named hub:org/name": lambda folder: folder.rename(
        folder.with_name("other")
    ),
    "holds no weights of a kind that is known": lambda folder: (folder / "model.npz").unlink(),
    "bert_config.json: hidden_act is 'silu'": lambda folder: configure(folder, hidden_act="silu"),
    "belong together": lambda folder: (folder / "vocab.txt").write_text("\n".join(cases.PIECES)),
    r"has no vocab\.txt": lambda folder: (folder / "vocab.txt").unlink(),
    "is not JSON": lambda folder: (folder / "bert_config.json").write_text("{"),
    "model.npz": lambda folder: (folder / "model.npz").write_bytes(b"PK" + bytes(100)),
}


def test_a_pickle_is_refused_and_not_opened(run, tmp_path):
    exporter.export_weights(run, tmp_path / "out", lambda _: None)
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


def test_a_release_that_fails_its_check_makes_no_run(release, tmp_path, monkeypatch):
    checks = {"a vector": (0.5, 1e-3)}
    monkeypatch.setattr(bert, "compare_outputs", lambda run, source: checks, raising=False)
    workdir = tmp_path / "run"
    said = refused(tmp_path, lambda: importer.import_weights(release, workdir, print, check=True))
    assert "a vector is not what the release says" in said
    checks["a vector"] = (1e-4, 1e-3)
    told = []
    importer.import_weights(release, workdir, told.append, check=True)
    assert told[-1] == "check: a vector differs by 1.0e-04, of at most 1e-03"


@pytest.mark.parametrize("part", ["checkpoints", "tokenizer", "config.json"])
def test_a_run_that_is_there_is_not_touched(release, run, tmp_path, part):
    workdir = bert_release.copy(run, tmp_path / "run")
    for other in {"checkpoints", "tokenizer", "config.json", "origin.json"} - {part}:
        shutil.rmtree(workdir / other, ignore_errors=True) or (workdir / other).unlink(True)
    said = refused(tmp_path, lambda: importer.import_weights(release, workdir, print))
    assert f"{workdir} holds " in said


def test_a_system_that_is_not_known_is_named_with_those_that_are(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "albert"}')
    known = "bert, distilbert, electra, gpt2, openai-gpt, roberta, xlnet"
    with pytest.raises(UserError, match=f"'albert', whose layers share .*; there are {known}$"):
        importer.detect_release(tmp_path)
