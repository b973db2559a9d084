"""GLUE's own files: which columns of which file are the texts and the label of a task.

Wang et al. 2018, https://gluebenchmark.com/tasks. All are TSV without quoting; labels keep the
names that the benchmark's server expects of predictions. Test files have no labels, and no row of
them may be lost. A few records of QQP are broken over two lines: they are left out and counted.
"""

from pathlib import Path
from typing import Any

from finetune.reading import Read, table
from pretrain.errors import UserError

Fields = dict[str, Any]
BINARY = ("0", "1")
NLI = ("entailment", "neutral", "contradiction")
TWO_WAY = ("entailment", "not_entailment")
PAIR = ("sentence1", "sentence2")
PARTS = {part: part for part in ("train", "dev", "test")}
MATCHED = {
    part: part
    for part in ("train", "dev_matched", "dev_mismatched", "test_matched", "test_mismatched")
}


def task(
    folder: str, texts: tuple, parts: dict[str, str] = PARTS, test: Fields | None = None, **fields
) -> dict[str, Fields]:
    """Fields of `table.read` by split, and "file"; `test` is what test files have otherwise."""
    hidden = {"label": "", "id": "index", "empty": True, **(test or {})}
    return {
        part: {"file": f"{folder}/{name}.tsv", "kind": "tsv", "texts": texts}
        | (hidden if part.startswith("test") else fields)
        for part, name in parts.items()
    }


GLUE: dict[str, dict[str, Fields]] = {
    "cola": task(
        "CoLA", (3,), label=1, labels=BINARY, header=False,
        test={"texts": ("sentence",)},
    ),
    "sst2": task("SST-2", ("sentence",), labels=BINARY),
    "mrpc": task("MRPC", ("#1 String", "#2 String"), label="Quality", labels=BINARY),
    "stsb": task("STS-B", PAIR, label="score", number=True, id="index"),
    "qqp": task(
        "QQP", ("question1", "question2"), label="is_duplicate", labels=BINARY, id="id",
        strict=False, test={"id": "id"},
    ),
    "mnli": task("MNLI", PAIR, MATCHED, label="gold_label", labels=NLI, id="index"),
    "qnli": task("QNLI", ("question", "sentence"), labels=TWO_WAY, id="index"),
    "rte": task("RTE", PAIR, labels=TWO_WAY, id="index"),
    "wnli": task("WNLI", PAIR, labels=BINARY, id="index"),
    "ax": task("diagnostic", PAIR, {"test": "diagnostic"}),
}  # fmt: skip


def read(path: str, *, task: str, split: str) -> Read:
    """A split of a task; `path` is the folder that holds CoLA, SST-2 and the others.

    Raises:
        UserError: there is no such task or split, or see `table.read`.
    """
    for name, value, choices in (("task", task, GLUE), ("split", split, GLUE.get(task, {}))):
        if value not in choices:
            raise UserError(f"{name}={value!r}: GLUE has {', '.join(choices)}")
    fields = dict(GLUE[task][split])
    return table.read(str(Path(path) / fields.pop("file")), **fields)
