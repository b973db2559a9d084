"""GLUE's own files are read task by task and split by split."""

import pytest

from finetune import datasets
from finetune.datasets.glue import GLUE
from pretrain.runtime.errors import UserError

PARSES = "sentence1_binary_parse\tsentence2_binary_parse\tsentence1_parse\tsentence2_parse"
MNLI = f"index\tpromptID\tpairID\tgenre\t{PARSES}\tsentence1\tsentence2"
STSB = "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2"
QQP = "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate"
FILES = [  # task, split, file, its lines as GLUE has them, texts, label
    ("cola", "train", "CoLA/train.tsv", "gj04\t0\t*\tOne two.", ["One two."], "0"),
    ("cola", "test", "CoLA/test.tsv", "index\tsentence\n0\tOne.", ["One."], None),
    ("sst2", "dev", "SST-2/dev.tsv", 'sentence\tlabel\n"one \t1', ['"one'], "1"),
    (
        "mrpc",
        "train",
        "MRPC/train.tsv",
        "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\n1\t7\t8\tOne.\tTwo.",
        ["One.", "Two."],
        "1",
    ),
    (
        "mrpc",
        "test",
        "MRPC/test.tsv",
        "index\t#1 ID\t#2 ID\t#1 String\t#2 String\n0\t7\t8\tOne.\tTwo.",
        ["One.", "Two."],
        None,
    ),
    (
        "stsb",
        "train",
        "STS-B/train.tsv",
        f"{STSB}\tscore\n0\tm\tf\t2012\t1\tn\tn\tOne.\tTwo.\t4.6",
        ["One.", "Two."],
        4.6,
    ),
    ("stsb", "test", "STS-B/test.tsv", f"{STSB}\n0\tm\tf\t2012\t1\tn\tn\tA\tB", ["A", "B"], None),
    (
        "qqp",
        "train",
        "QQP/train.tsv",
        f"{QQP}\n9\t1\t2\tA?\tB?\t0\n8\t3\t4\tcut",
        ["A?", "B?"],
        "0",
    ),
    ("qqp", "test", "QQP/test.tsv", "id\tquestion1\tquestion2\n0\tA?\tB?", ["A?", "B?"], None),
    (
        "mnli",
        "train",
        "MNLI/train.tsv",
        f"{MNLI}\tlabel1\tgold_label\n0\t1\t2\tg\t(\t(\t(\t(\tA\tB\tneutral\tentailment",
        ["A", "B"],
        "entailment",
    ),
    (
        "mnli",
        "dev_mismatched",
        "MNLI/dev_mismatched.tsv",
        f"{MNLI}\tlabel1\tlabel2\tgold_label\n0\t1\t2\tg\t(\t(\t(\t(\tA\tB\tneutral\tneutral\tneutral",
        ["A", "B"],
        "neutral",
    ),
    (
        "mnli",
        "test_matched",
        "MNLI/test_matched.tsv",
        f"{MNLI}\n0\t1\t2\tg\t(\t(\t(\t(\tA\tB",
        ["A", "B"],
        None,
    ),
    (
        "qnli",
        "dev",
        "QNLI/dev.tsv",
        "index\tquestion\tsentence\tlabel\n0\tA?\tB.\tnot_entailment",
        ["A?", "B."],
        "not_entailment",
    ),
    (
        "rte",
        "train",
        "RTE/train.tsv",
        "index\tsentence1\tsentence2\tlabel\n0\tA\tB\tentailment",
        ["A", "B"],
        "entailment",
    ),
    (
        "wnli",
        "dev",
        "WNLI/dev.tsv",
        "index\tsentence1\tsentence2\tlabel\n0\tA\tB\t1",
        ["A", "B"],
        "1",
    ),
    (
        "ax",
        "test",
        "diagnostic/diagnostic.tsv",
        "index\tsentence1\tsentence2\n0\tA\tB",
        ["A", "B"],
        None,
    ),
]


@pytest.mark.parametrize(("task", "split", "file", "content", "texts", "label"), FILES)
def test_glue_is_read_as_its_files_are(tmp_path, task, split, file, content, texts, label):
    path = tmp_path / file
    path.parent.mkdir()
    path.write_text(content + "\n")
    found = datasets.read("glue", str(tmp_path), task=task, split=split)
    assert [(example["texts"], example["label"]) for example in found.examples] == [(texts, label)]
    assert ("id" in found.examples[0]) == (
        split.startswith("test") or "\nindex" in "\n" + content or task == "qqp"
    )
    assert bool(found.notes) == ("cut" in content)


def test_every_glue_task_is_there_and_others_are_named(tmp_path):
    assert {name for name, *_ in FILES} == set(GLUE)
    with pytest.raises(UserError, match="task='sst': GLUE has cola, sst2"):
        datasets.read("glue", str(tmp_path), task="sst", split="dev")
    with pytest.raises(UserError, match="split='dev': GLUE has train, dev_matched"):
        datasets.read("glue", str(tmp_path), task="mnli", split="dev")
