"""Reads GLUE, its own files or TFDS's: the columns of each task and split.

Wang et al. 2018, https://gluebenchmark.com/tasks.  Labels have the names that the benchmark's
server expects of predictions, also those of TFDS.
"""

from pathlib import Path
from typing import Any

from finetune.datasets import Read, table, tfds
from pretrain.runtime.errors import UserError

Fields = dict[str, Any]
PREPARED = "tfds:"  # the prefix of the sources of pretraining, too
BINARY = ("0", "1")
NLI = ("entailment", "neutral", "contradiction")
TWO_WAY = ("entailment", "not_entailment")
PAIR = ("sentence1", "sentence2")
QUESTIONS = ("question1", "question2")
PARTS = {part: part for part in ("train", "dev", "test")}
MATCHED = {
    part: part
    for part in ("train", "dev_matched", "dev_mismatched", "test_matched", "test_mismatched")
}


def task(
    folder: str, texts: tuple, parts: dict[str, str] = PARTS, test: Fields | None = None, **fields
) -> dict[str, Fields]:
    """Returns the fields of `table.read` by split, and "file"; `test` overrides those of tests."""
    # A row that is left out of a test file would shift all predictions after it.
    hidden = {"label": "", "id": "index", "empty": "keep", **(test or {})}
    return {
        part: {"file": f"{folder}/{name}.tsv", "kind": "tsv", "texts": texts}
        | (hidden if part.startswith("test") else {"empty": "error", **fields})
        for part, name in parts.items()
    }


GLUE: dict[str, dict[str, Fields]] = {
    "cola": task(
        "CoLA",
        (3,),
        label=1,
        labels=BINARY,
        header=False,
        test={"texts": ("sentence",)},
    ),
    "sst2": task("SST-2", ("sentence",), labels=BINARY),
    "mrpc": task("MRPC", ("#1 String", "#2 String"), label="Quality", labels=BINARY),
    "stsb": task("STS-B", PAIR, label="score", number=True, id="index"),
    "qqp": task(
        "QQP",
        QUESTIONS,
        label="is_duplicate",
        labels=BINARY,
        id="id",
        # A few records are broken over two lines: they are left out and counted.
        strict=False,
        test={"id": "id"},
    ),
    "mnli": task("MNLI", PAIR, MATCHED, label="gold_label", labels=NLI, id="index"),
    "qnli": task("QNLI", ("question", "sentence"), labels=TWO_WAY, id="index"),
    "rte": task("RTE", PAIR, labels=TWO_WAY, id="index"),
    "wnli": task("WNLI", PAIR, labels=BINARY, id="index"),
    "ax": task("diagnostic", PAIR, {"test": "diagnostic"}),
}


def binary_names(*classes: str) -> dict[str, str]:
    # TFDS's names of two classes -> the 0 and 1 of the files.
    return dict(zip(classes, BINARY, strict=True))


STATED = ("premise", "hypothesis")
TFDS: dict[str, Fields] = {  # fields of `tfds.read`
    "cola": dict(texts=("sentence",), labels=binary_names("unacceptable", "acceptable")),
    "sst2": dict(texts=("sentence",), labels=binary_names("negative", "positive")),
    "mrpc": dict(texts=PAIR, labels=binary_names("not_equivalent", "equivalent")),
    "stsb": dict(texts=PAIR, number=True),
    "qqp": dict(texts=QUESTIONS, labels=binary_names("not_duplicate", "duplicate"), strict=False),
    "mnli": dict(texts=STATED, labels=NLI),
    "qnli": dict(texts=("question", "sentence"), labels=TWO_WAY),
    "rte": dict(texts=PAIR, labels=TWO_WAY),
    "wnli": dict(texts=PAIR, labels=binary_names("not_entailment", "entailment")),
    "ax": dict(texts=STATED),
}


def read(path: str, *, task: str, split: str, tfds_dir: str = "") -> Read:
    """Reads a split of a task: "train", "dev" or, of MNLI, "dev_matched".

    Args:
        task: as "cola", of `GLUE`.
        split: "train", "dev", "test", or of MNLI "dev_matched" and the like.
        path: the folder that holds CoLA, SST-2 and the others; or "tfds:glue", which may have
            a version behind it: "tfds:glue:2.0.0".
        tfds_dir: see `tfds.read`.

    Raises:
        UserError: there is no such task or split, or see `table.read` and `tfds.read`.
    """
    for name, value, choices in (("task", task, GLUE), ("split", split, GLUE.get(task, {}))):
        if value not in choices:
            raise UserError(f"{name}={value!r}: GLUE has {', '.join(choices)}")
    if path.startswith(PREPARED):
        return _read_prepared(path.removeprefix(PREPARED), task, split, tfds_dir)
    fields = dict(GLUE[task][split])  # a copy: "file" is taken out of it
    return table.read(str(Path(path) / fields.pop("file")), **fields)


def _read_prepared(name: str, task: str, split: str, tfds_dir: str) -> Read:
    base, colon, version = name.partition(":")
    fields = {**TFDS[task], "id": "idx", "tfds_dir": tfds_dir}
    if split.startswith("test"):  # STS-B's scores are -1 there
        fields |= {"label": "", "empty": "keep"}
    their_split = split.replace("dev", "validation")
    return tfds.read(f"{base}/{task}{colon}{version}", split=their_split, **fields)
