"""Every array and every parameter has one place."""

import numpy as np
import pytest

from pretrain.conversion import exporter
from pretrain.conversion.name_map import suggest_ignore
from pretrain.formats import safetensors
from pretrain.runtime.errors import UserError
from tests.support.array_mapping import specs
from tests.support.bert_release import import_release, rewrite

BROKEN = {
    "one is left over": (
        lambda x: x.update(classifier=np.zeros(3, np.float32)),
        r"classifier: \(3,\) is unexpected\n.*, --ignore='classifier\.\*' leaves them out$",
    ),
    "one is missing": (
        lambda x: x.pop("bert/encoder/layer_1/output/dense/bias"),
        "bert/encoder/layer_1/output/dense/bias: missing",
    ),
    "one is larger": (
        lambda x: x.update({"bert/pooler/dense/bias": np.zeros(9, np.float32)}),
        r"bert/pooler/dense/bias: \(9,\) where \(\d+,\) belongs",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_weights_that_are_not_what_they_should_be_make_no_run(changed, tmp_path, name):
    change, reason = BROKEN[name]
    rewrite(changed, change)
    with pytest.raises(UserError, match=reason):
        import_release(changed, tmp_path / "run")
    assert not (tmp_path / "run" / "config.json").exists()


def test_what_is_read_is_not_left_out_with_a_head():
    names = ["classifier.weight", "classifier.bias", "bert.extra"]
    said = suggest_ignore(names, ["bert.embeddings", "cls.bias"])
    assert said.endswith(r"--ignore='classifier.*|bert\.extra' leaves them out")


def test_an_array_can_be_left_out_by_name(changed, tmp_path):
    rewrite(changed, BROKEN["one is left over"][0])
    said = import_release(changed, tmp_path / "run", ignore="classifier.*")
    assert "ignored, left out as asked: classifier (1)" in said


def test_a_tied_copy_must_be_one(run, tmp_path):
    exporter.export_weights(run, tmp_path / "out", lambda _: None)
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
