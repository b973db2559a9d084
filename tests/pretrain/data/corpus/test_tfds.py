"""A TFDS dataset is a source like any other: no TensorFlow, one document per example."""

import sys

import numpy as np
import pytest
import tensorflow_datasets as tfds

from pretrain.data import prepare
from pretrain.data.corpus import sources
from pretrain.runtime.errors import UserError
from tests.support import corpora


class TinyStories(tfds.core.GeneratorBasedBuilder):
    """Three stories, the second of them empty."""

    VERSION = tfds.core.Version("1.0.0")

    def _info(self):
        features = {"text": tfds.features.Text(), "title": tfds.features.Text(), "year": np.int64}
        return tfds.core.DatasetInfo(
            builder=self, features=tfds.features.FeaturesDict(features), disable_shuffling=True
        )

    def _split_generators(self, dl_manager):
        return {"train": self._generate_examples()}

    def _generate_examples(self):
        stories = [corpora.prose(1, 300), "", "Second líne.\n\nThird."]
        for number, story in enumerate(stories):
            yield number, {"text": story, "title": f"Title {number}", "year": 1900}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = str(tmp_path_factory.mktemp("tfds"))
    TinyStories(data_dir=place, file_format="array_record").download_and_prepare()
    return place


def find(name, folder, text_key="text", tfds_split="train"):
    return sources.find_source(
        f"tfds:{name}", text_key=text_key, tfds_split=tfds_split, tfds_dir=folder
    )


def test_each_example_is_a_document(folder):
    found = find("tiny_stories", folder)
    assert found.name == "tfds-tiny_stories"
    documents = ["".join(document) for document in found.read()]
    assert documents == [corpora.prose(1, 300), "Second líne.\n\nThird.\n"]
    assert "tensorflow" not in sys.modules


def test_version_key_and_slice_can_be_chosen(folder):
    found = find("tiny_stories:1.0.0", folder, "title", "train[1:]")
    assert ["".join(document) for document in found.read()] == ["Title 1\n", "Title 2\n"]


def test_a_dataset_is_prepared_and_its_files_are_the_inputs(folder, tmp_path):
    corpus = prepare.prepare(
        source="tfds:tiny_stories",
        tfds_dir=folder,
        cache=str(tmp_path),
        held_out=0.5,
        tokens=corpora.TOKENS,
    )
    assert corpus.manifest["documents"] == 2
    assert any("array_record" in path for path in corpus.manifest["inputs"])


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (dict(name="no_such_stories"), "no_such_stories"),
        (dict(name="tiny_stories", tfds_split="test"), "no split 'test', but train"),
        (dict(name="tiny_stories", tfds_split="train[x:]"), "train"),
        (dict(name="tiny_stories", text_key="body"), "no feature 'body', but text, title, year"),
        (dict(name="tiny_stories", text_key="year"), "'year' is not text"),
        (dict(name="tiny_stories:7.0.0"), "7.0.0"),
    ],
)
def test_what_is_not_there_is_named(folder, asked, message):
    with pytest.raises(UserError, match=message):
        find(folder=folder, **asked)


def test_a_dataset_not_yet_prepared_says_how(tmp_path):
    with pytest.raises(UserError, match=r"not prepared.*download_and_prepare"):
        find("tiny_stories", str(tmp_path))
