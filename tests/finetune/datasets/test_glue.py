"""GLUE's own files are read task by task and split by split."""

import pytest

from finetune import datasets
from finetune.datasets.glue import GLUE
from pretrain.runtime.errors import UserError

PARSES = "sentence1_binary_parse|sentence2_binary_parse|sentence1_parse|sentence2_parse"
MNLI = f"index|promptID|pairID|genre|{PARSES}|sentence1|sentence2"
NLI, QNLI = "0|1|2|g|(|(|(|(|A.|B.", "index|question|sentence"
UNLIKE, MRPC = "MNLI/dev_mismatched.tsv", "x|y|#1 String|#2 String"
STSB = "index|genre|filename|year|old_index|source1|source2|sentence1|sentence2"
QQP = "id|qid1|qid2|question1|question2|is_duplicate"
PAIR = "index|sentence1|sentence2"
ONE, TWO = ["A."], ["A.", "B."]
FILES = [  # task, split, file, its lines as GLUE has them with "|" for a tab, texts, label
    ("cola", "train", "CoLA/train.tsv", "gj04|0|*|A.", ONE, "0"),
    ("cola", "test", "CoLA/test.tsv", "index|sentence\n0|A.", ONE, None),
    ("sst2", "dev", "SST-2/dev.tsv", 'sentence|label\n"a |1', ['"a'], "1"),
    ("mrpc", "train", "MRPC/train.tsv", f"\ufeffQuality|{MRPC}\n1|7|8|A.|B.", TWO, "1"),
    ("mrpc", "test", "MRPC/test.tsv", f"index|{MRPC}\n0|7|8|A.|B.", TWO, None),
    ("stsb", "train", "STS-B/train.tsv", f"{STSB}|score\n0|m|f|2012|1|n|n|A.|B.|4.6", TWO, 4.6),
    ("stsb", "test", "STS-B/test.tsv", f"{STSB}\n0|m|f|2012|1|n|n|A.|B.", TWO, None),
    ("qqp", "train", "QQP/train.tsv", f"{QQP}\n9|1|2|A.|B.|0\n8|3|4|cut", TWO, "0"),
    ("qqp", "test", "QQP/test.tsv", "id|question1|question2\n0|A.|B.", TWO, None),
    ("mnli", "train", "MNLI/train.tsv", f"{MNLI}|l|gold_label\n{NLI}|x|neutral", TWO, "neutral"),
    ("mnli", "dev_mismatched", UNLIKE, f"{MNLI}|l|m|gold_label\n{NLI}|x|x|neutral", TWO, "neutral"),
    ("mnli", "test_matched", "MNLI/test_matched.tsv", f"{MNLI}\n{NLI}", TWO, None),
    ("qnli", "dev", "QNLI/dev.tsv", f"{QNLI}|label\n0|A.|B.|entailment", TWO, "entailment"),
    ("rte", "train", "RTE/train.tsv", f"{PAIR}|label\n0|A.|B.|entailment", TWO, "entailment"),
    ("wnli", "dev", "WNLI/dev.tsv", f"{PAIR}|label\n0|A.|B.|1", TWO, "1"),
    ("ax", "test", "diagnostic/diagnostic.tsv", f"{PAIR}\n0|A.|B.", TWO, None),
]


@pytest.mark.parametrize(("task", "split", "file", "content", "texts", "label"), FILES)
def test_glue_is_read_as_its_files_are(tmp_path, task, split, file, content, texts, label):
    path = tmp_path / file
    path.parent.mkdir()
    path.write_text(content.replace("|", "\t") + "\n")
    found = datasets.read("glue", str(tmp_path), task=task, split=split)
    assert [(example["texts"], example["label"]) for example in found.examples] == [(texts, label)]
    has_id = split.startswith("test") or content.startswith("index") or task == "qqp"
    assert ("id" in found.examples[0]) == has_id
    assert bool(found.notes) == ("cut" in content)


def test_every_glue_task_is_there_and_others_are_named(tmp_path):
    assert {name for name, *_ in FILES} == set(GLUE)
    with pytest.raises(UserError, match="task='sst': GLUE has cola, sst2"):
        datasets.read("glue", str(tmp_path), task="sst", split="dev")
    with pytest.raises(UserError, match="split='dev': GLUE has train, dev_matched"):
        datasets.read("glue", str(tmp_path), task="mnli", split="dev")
