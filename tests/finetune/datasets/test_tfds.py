"""A TFDS dataset gives the examples its files would give, with classes called by name."""

import sys

import numpy as np
import pytest
import tensorflow_datasets as tfds
from tensorflow_datasets.text.glue import Glue

from finetune import datasets
from finetune.datasets import glue
from pretrain.runtime.errors import UserError

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
            yield (
                number,
                {
                    "sentence1": one,
                    "sentence2": two,
                    "label": label if told else -1,
                    "score": score,
                    "idx": 10 + number,
                },
            )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = str(tmp_path_factory.mktemp("tfds"))
    TinyPairs(data_dir=place, file_format="array_record").download_and_prepare()
    return place


def read(folder, name="tiny_pairs", split="train", texts=("sentence1",), **fields):
    return datasets.read("tfds", name, split=split, texts=texts, tfds_dir=folder, **fields)


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
    found = read(folder, texts=both, skip=("yes",), empty="keep")
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


# --- GLUE, by TFDS's own description of it -------------------------------------------------------


@pytest.fixture
def prepared(tmp_path, monkeypatch):
    """task -> the folder where TFDS has it, an example of each class in every split."""

    def rows(builder, told):
        kinds = builder.info.features
        classes = range(kinds["label"].num_classes) if hasattr(kinds["label"], "names") else (2.5,)
        texts = {name: f"The {name}." for name in kinds if name not in ("label", "idx")}
        for number, label in enumerate(classes):
            yield number, {**texts, "label": label if told else -1, "idx": number}

    def splits(builder, _):
        names = ["train", "validation", "test"]
        if builder.builder_config.name == "mnli":
            halves = ("matched", "mismatched")
            names = ["train", *(f"{part}_{half}" for part in names[1:] for half in halves)]
        return {name: rows(builder, not name.startswith("test")) for name in names}

    def make(task):
        monkeypatch.setattr(Glue, "_split_generators", splits)
        place = dict(data_dir=str(tmp_path), file_format="array_record")
        tfds.builder(f"glue/{task}", **place).download_and_prepare()
        return str(tmp_path)

    return make


@pytest.mark.parametrize("task", glue.GLUE)
def test_glue_of_tfds_has_the_files_splits_and_labels(prepared, task):
    place = prepared(task)
    for split, fields in glue.GLUE[task].items():
        found = datasets.read("glue", "tfds:glue", task=task, split=split, tfds_dir=place).examples
        labels = [None] if split.startswith("test") else fields.get("labels", [2.5])
        assert {x["label"] for x in found} == set(labels)
        assert [len(x["texts"]) for x in found] == [len(fields["texts"])] * len(found)
        assert sorted(x["id"] for x in found) == [str(n) for n in range(len(found))]


def test_paraphrases_are_1_as_in_the_files(prepared):
    place = prepared("mrpc")
    names = tfds.builder("glue/mrpc", data_dir=place).info.features["label"].names
    found = datasets.read("glue", "tfds:glue:2.0.0", task="mrpc", split="dev", tfds_dir=place)
    told = {names[int(x["id"])]: x["label"] for x in found.examples}
    assert told == {"equivalent": "1", "not_equivalent": "0"}
