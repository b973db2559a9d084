"""A TFDS dataset gives the examples its files would give, with classes called by name."""

import sys

import numpy as np
import pytest
import tensorflow_datasets as tfds

from finetune import reading
from pretrain.errors import UserError

PAIRS = [("Ein Satz.", "Zwölf.", "no", 0.5), ("Two.", "Three.", "yes", 4.0), ("A.", "", "no", 1.0)]


class TinyPairs(tfds.core.GeneratorBasedBuilder):
    """Two pairs and one without a second text to train on, and a test whose labels are hidden."""

    VERSION = tfds.core.Version("1.0.0")

    def _info(self):
        features = {
            "sentence1": tfds.features.Text(),
            "sentence2": tfds.features.Text(),
            "label": tfds.features.ClassLabel(names=["no", "yes"]),
            "score": np.float32,
            "idx": np.int32,
        }
        return tfds.core.DatasetInfo(
            builder=self, features=tfds.features.FeaturesDict(features), disable_shuffling=True
        )

    def _split_generators(self, dl_manager):
        return {"train": self._generate_examples(True), "test": self._generate_examples(False)}

    def _generate_examples(self, told):
        for number, (one, two, label, score) in enumerate(PAIRS):
            yield number, {
                "sentence1": one, "sentence2": two, "label": label if told else -1,
                "score": score, "idx": 10 + number,
            }  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = str(tmp_path_factory.mktemp("tfds"))
    TinyPairs(data_dir=place, file_format="array_record").download_and_prepare()
    return place


def read(folder, name="tiny_pairs", split="train", texts=("sentence1",), **fields):
    return reading.read("tfds", name, split=split, texts=texts, tfds_dir=folder, **fields)


def test_classes_are_called_by_name_and_hidden_ones_are_none(folder):
    found = read(folder, id="idx").examples
    assert [(e["texts"], e["label"], e["id"]) for e in found] == [
        ([one], label, str(10 + i)) for i, (one, _, label, _) in enumerate(PAIRS)
    ]
    assert found[1]["where"] == "tfds:tiny_pairs, train, example 1"
    assert [e["label"] for e in read(folder, split="test").examples] == [None] * 3
    assert "tensorflow" not in sys.modules


def test_pairs_numbers_and_slices_can_be_asked_for(folder):
    both = ("sentence1", "sentence2")
    found = read(folder, split="train[:2]", texts=both, label="score", number=True).examples
    assert [(*e["texts"], e["label"]) for e in found] == [(a, b, s) for a, b, _, s in PAIRS[:2]]
    found = read(folder, texts=both, skip=("yes",), empty=True)
    assert [e["texts"][1] for e in found.examples] == ["Zwölf.", ""]
    assert "rows of label 'yes': 1" in found.notes[0]


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (dict(name="no_such_pairs"), "no_such_pairs"),
        (dict(split="dev"), "tfds:tiny_pairs has no split 'dev', but train, test"),
        (dict(texts=("text",)), "has no feature 'text', but sentence1"),
        (dict(label="gold"), "has no feature 'gold'"),
        (dict(texts=("idx",)), "'idx' is not text"),
        (dict(texts=("sentence2",)), "tfds:tiny_pairs, train, example 2: 'sentence2' is empty"),
        (dict(labels=("yes",)), "train, example 0: the label 'no' is not one of yes"),
    ],
)
def test_what_is_not_there_is_named(folder, asked, message):
    with pytest.raises(UserError) as caught:
        read(folder, **asked)
    assert message in str(caught.value)


def test_a_dataset_not_yet_prepared_says_how(tmp_path):
    with pytest.raises(UserError, match=r"not prepared.*download_and_prepare"):
        read(str(tmp_path))
