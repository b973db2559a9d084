"""The task of the default corpus is fixed, fair and what the history books say."""

from collections import Counter

import pytest

from finetune import datasets
from pretrain.data.corpus import sources
from pretrain.runtime.errors import UserError
from tests.support import sotu

SPLITS = ("train", "dev", "test")


@pytest.fixture(scope="module")
def found():
    return {
        (split, label): datasets.read("sotu_author", split, label=label)
        for split in SPLITS
        for label in ("party", "century")
    }


def document(example):
    return example["where"].partition(".txt")[0]


def test_paragraphs_have_20_to_200_words_and_their_documents_label(found):
    rows = sotu.messages()
    for (_, label), read in found.items():
        for example in read.examples:
            row = rows[document(example)]
            century = 1 + (int(row["year"]) - 1) // 100
            expected = (
                row["party"] if label == "party" else f"{century}{'st' * (century == 21) or 'th'}"
            )
            assert example["label"] == expected
            assert 20 <= len(example["texts"][0].split()) <= 200


@pytest.mark.parametrize("label", ["party", "century"])
def test_no_document_year_or_paragraph_is_in_two_splits(found, label):
    for one in (document, lambda e: e["where"][:4], lambda e: e["texts"][0]):
        held = [{one(example) for example in found[split, label].examples} for split in SPLITS]
        assert len(set.union(*held)) == sum(map(len, held))


def test_parties_are_balanced_and_counts_are_told(found):
    for (split, label), read in found.items():
        counts = Counter(example["label"] for example in read.examples)
        assert all(f"{name} {count:,}" in read.notes[0] for name, count in counts.items())
        assert label == "century" or min(counts.values()) > 0.44 * len(read.examples), split
    assert len(found["train", "party"].examples) == 15064


def test_every_paragraph_is_an_example_or_counted(found):
    paragraphs = sum(
        len(path.read_text().strip().replace("\n\n\n", "\n\n").split("\n\n"))
        for path in sources.find_source("sotu").inputs
    )
    for label in ("party", "century"):
        reads = [found[split, label] for split in SPLITS]
        left_out = [
            int(note.split(": ")[2].split(", the first")[0].replace(",", ""))
            for read in reads
            for note in read.notes[1:]
        ]
        assert sum(len(read.examples) for read in reads) + sum(left_out) == paragraphs


def test_another_split_or_label_is_named():
    with pytest.raises(UserError, match="split 'valid' is not one of train, dev, test"):
        datasets.read("sotu_author", "valid")
    with pytest.raises(UserError, match="label 'name' is not one of party, century"):
        datasets.read("sotu_author", "dev", label="name")
