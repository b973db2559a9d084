"""Published data sets have as many examples as their papers say; they are read where they lie."""

import json
import pathlib
from collections import Counter

import pytest

from finetune import datasets

DATA = pathlib.Path(__file__).parents[4] / "shared" / "data"
SST = dict(label_first=True)  # UTF-8; the others of that folder are not
SENTENCES = dict(label_first=True, encoding="latin-1")
STS = dict(header=False, texts=(0, 1), label=2, number=True)
NLI = dict(texts=("premise", "hypothesis"), labels=("entailment", "neutral", "contradiction"))
RTE = NLI | dict(labels=("entailment", "not_entailment"))
SETS = [
    ("table", "sentences/rt-polarity.all", SENTENCES, 10_662),
    ("table", "sentences/stsa.binary.train", SST, 6_920),
    ("table", "sentences/stsa.binary.dev", SST, 872),
    ("table", "sentences/stsa.binary.test", SST, 1_821),
    ("table", "sentences/TREC.train.all", SENTENCES, 5_452),
    ("table", "sentences/TREC.test.all", SENTENCES, 500),
    ("table", "sentences/TREC.train", SENTENCES, 5_452),
    ("table", "sts-b/stsb-en-train.csv", STS, 5_749),
    ("table", "sts-b/stsb-en-dev.csv", STS, 1_500),
    ("table", "sts-b/stsb-en-test.csv", STS, 1_379),
    ("table", "nli/rte/train.csv", RTE, 2_490),
    ("table", "nli/rte/dev.csv", RTE, 277),
    ("table", "nli/sick/train.csv", NLI, 9_500),
    ("table", "nli/sick/dev.csv", NLI, 500),
    ("conll", "wnut17/wnut17train.conll", {}, 3_394),
    ("conll", "wnut17/emerging.dev.conll", {}, 1_009),
    ("conll", "wnut17/emerging.test.annotated", {}, 1_287),
    ("conll", "zh/ner-resume/train.char.bmes", {}, 3_821),
    ("conll", "zh/ner-resume/dev.char.bmes", {}, 463),
    ("conll", "zh/ner-resume/test.char.bmes", {}, 477),
    ("squad", "xquad/xquad.en.json", {}, 1_190),
    ("squad", "xquad/xquad.zh.json", {}, 1_190),
    ("semeval2010", "semeval2010-task8/TRAIN_FILE.TXT", {}, 8_000),
    ("semeval2010", "semeval2010-task8/TEST_FILE_FULL.TXT", {}, 2_717),
    ("trees", "sst-trees/train.txt", {}, 8_544),
    ("trees", "sst-trees/dev.txt", {}, 1_101),
    ("trees", "sst-trees/test.txt", {}, 2_210),
    ("trees", "sst-trees/train.txt", {"phrases": True}, 159_274),
    ("multiple_choice", "choice/copa.jsonl", {}, 100),
    ("multiple_choice", "choice/openbook_qa.jsonl", {}, 500),
    ("multiple_choice", "choice/commonsense_qa.jsonl", {"lettered": True}, 1_221),
    ("multiple_choice", "choice/arc_easy.jsonl", {}, 2_376),
]


def read(format, name, **fields):
    path = DATA / name
    if not path.exists():
        pytest.skip(f"{name} is not here")
    return datasets.read(format, str(path), **fields)


@pytest.mark.parametrize(("format", "name", "fields", "count"), SETS, ids=[s[1] for s in SETS])
def test_published_sets_have_their_published_sizes(format, name, fields, count):
    found = read(format, name, **fields)
    assert (len(found.examples), found.notes) == (count, [])


def test_classes_are_as_many_as_published():
    halves = Counter(
        e["label"] for e in read("table", "sentences/rt-polarity.all", **SENTENCES).examples
    )
    assert halves == {"0": 5_331, "1": 5_331}
    six = {e["label"] for e in read("table", "sentences/TREC.test.all", **SENTENCES).examples}
    assert six == set("012345")
    for part in ("train", "test"):
        named = read("table", f"sentences/TREC.{part}", **SENTENCES, until=":").examples
        counted = read("table", f"sentences/TREC.{part}.all", **SENTENCES).examples
        both = {(a["label"], b["label"]) for a, b in zip(named, counted, strict=True)}
        assert len(both) == len(dict(both)) == 6


def test_accents_are_read_in_the_encoding_of_their_file():
    assert any("crème brûlée" in e["texts"][0] for e in read("table", SETS[3][1], **SST).examples)
    reviews = read("table", "sentences/rt-polarity.all", **SENTENCES).examples
    assert any("cliché" in example["texts"][0] for example in reviews)


def test_scores_go_from_0_to_5():
    scores = [e["label"] for e in read("table", "sts-b/stsb-en-dev.csv", **STS).examples]
    assert (min(scores), max(scores)) == (0.0, 5.0)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("wnut17train.conll", 62_730),
        ("emerging.dev.conll", 15_733),
        ("emerging.test.annotated", 23_394),
    ],
)
def test_wnut_has_its_words_and_six_types_of_entity(name, words):
    found = read("conll", f"wnut17/{name}").examples
    assert sum(len(example["words"]) for example in found) == words
    types = {label[2:] for example in found for label in example["labels"]} - {""}
    assert types == {"corporation", "creative-work", "group", "location", "person", "product"}


def test_relations_are_those_of_the_official_key():
    found = read("semeval2010", "semeval2010-task8/TEST_FILE_FULL.TXT").examples
    key = (DATA / "semeval2010-task8/TEST_FILE_KEY.TXT").read_text().split()
    undirected = [(e["id"], e["label"].partition("(")[0]) for e in found]
    assert undirected == list(zip(key[::2], key[1::2], strict=True))


def test_both_languages_ask_the_same_questions():
    english, chinese = (read("squad", f"xquad/xquad.{lang}.json").examples for lang in ("en", "zh"))
    assert [e["id"] for e in english] == [e["id"] for e in chinese]


def test_spelt_out_choices_are_four_to_a_question():
    found = read("multiple_choice", "choice/commonsense_qa.jsonl", lettered=True).examples
    lines = (DATA / "choice/commonsense_qa.jsonl").read_text().splitlines()
    for example, line in zip(found, lines, strict=True):
        query = json.loads(line)["query"]
        assert all(f". {choice}\n" in query for choice in example["choices"])
        assert len(example["choices"]) == 4
