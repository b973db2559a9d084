"""Published data sets have as many examples as their papers say; they are read where they lie."""

import pathlib

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


@pytest.mark.parametrize(("format", "name", "fields", "count"), SETS, ids=[s[1] for s in SETS])
def test_published_sets_have_their_published_sizes(format, name, fields, count):
    path = DATA / name
    if not path.exists():
        pytest.skip(f"{name} is not here")
    found = datasets.read(format, str(path), **fields)
    assert (len(found.examples), found.notes) == (count, [])
