"""A run goes out as its numbers fit, or not at all."""

import json

import jax.numpy as jnp
import numpy as np
import pytest

from pretrain.conversion import exporter
from pretrain.formats import npz, safetensors
from pretrain.inference.trained_run import load_backbone_params, load_run
from pretrain.runtime.errors import UserError
from pretrain.runtime.json_files import read_json
from tests.support import bert_release
from tests.support.bert_release import import_release, leaves, rewrite
from tests.support.failing_disk import refused
from tests.support.tiny_models import layout


def test_what_goes_out_as_it_came_is_the_same_to_the_bit(release, run, tmp_path):
    exporter.export_weights(run, tmp_path / "out", lambda _: None, kind="npz")
    with (
        npz.open_arrays(release / "model.npz") as one,
        npz.open_arrays(tmp_path / "out/model.npz") as other,
    ):
        assert one.specs.keys() == other.specs.keys()
        for name in one.specs:
            np.testing.assert_array_equal(one.read(name), other.read(name))


@pytest.mark.parametrize("dtype", [pytest.param("float16", marks=pytest.mark.slow), "bfloat16"])
def test_half_precision_goes_out_when_asked_and_then_stays(run, tmp_path, dtype):
    exporter.export_weights(run, tmp_path / "half", lambda _: None, dtype=dtype)
    with safetensors.open_arrays(tmp_path / "half") as arrays:
        assert {spec.dtype for spec in arrays.specs.values()} == {jnp.dtype(dtype)}
        half = arrays.read("bert.pooler.dense.weight")
    pool_DD = load_backbone_params(load_run(run), layout())[0]["pool_DD"]
    np.testing.assert_array_equal(half, np.asarray(pool_DD).astype(dtype).T)
    import_release(tmp_path / "half", tmp_path / "run")
    assert {leaf["dtype"] for leaf in leaves(tmp_path / "run").values()} == {"float32"}
    exporter.export_weights(tmp_path / "run", tmp_path / "back", lambda _: None)
    first, second = (
        (tmp_path / name / "model.safetensors").read_bytes() for name in ("half", "back")
    )
    assert first == second


def test_a_fine_tuned_run_goes_out_as_its_backbone_alone(run, tmp_path):
    tuned = bert_release.copy(run, tmp_path / "tuned")
    (tuned / "origin.json").unlink()
    config = json.loads((tuned / "config.json").read_text())
    del config["objective"]
    (tuned / "config.json").write_text(json.dumps(config))
    said = []
    exporter.export_weights(tuned, tmp_path / "out", said.append)
    assert said[0].startswith("left behind: ")
    assert read_json(tmp_path / "out/config.json")["architectures"] == ["BertModel"]
    with safetensors.open_arrays(tmp_path / "out") as arrays:
        kinds = {name.partition(".")[0] for name in arrays.specs}
        assert kinds == {"embeddings", "encoder", "pooler"}


def test_a_number_too_large_for_half_precision_is_not_made_infinite(changed, tmp_path):
    rewrite(changed, lambda arrays: arrays["bert/pooler/dense/bias"].fill(1e6))
    import_release(changed, tmp_path / "run")
    with pytest.raises(UserError, match=r"pooler.dense.bias does not fit in float16"):
        exporter.export_weights(tmp_path / "run", tmp_path / "out", print, dtype="float16")
    assert not (tmp_path / "out").exists()


def test_large_folders_are_in_shards(run, tmp_path, monkeypatch):
    monkeypatch.setattr(safetensors.write, "__defaults__", (4096,))
    exporter.export_weights(run, tmp_path / "out", lambda _: None)
    assert len(list((tmp_path / "out").glob("model-*.safetensors"))) > 2
    import_release(tmp_path / "out", tmp_path / "again")
    assert leaves(tmp_path / "again") == leaves(run)
    assert load_run(tmp_path / "again").config.objective == load_run(run).config.objective


def test_a_kind_that_cannot_be_written_is_refused(run, tmp_path):
    said = refused(
        tmp_path, lambda: exporter.export_weights(run, tmp_path, print, kind="tensorflow")
    )
    assert "can be written as npz, hugging_face" in said


@pytest.mark.parametrize("text", ["[]", "{}", '{"dtype": "int8"}', '{"dtype": [1]}'])
def test_an_origin_that_was_edited_is_told_in_a_line(run, tmp_path, text):
    other = bert_release.copy(run, tmp_path / "other")
    (other / "origin.json").write_text(text)
    said = refused(tmp_path, lambda: exporter.export_weights(other, tmp_path / "out", print))
    assert "origin.json: dtype is " in said
