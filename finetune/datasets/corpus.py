"""Turns labelled examples into a corpus: their texts alone, a document each.

    --config.corpus.source=finetune.datasets.corpus --config.corpus.data.path=TREC.train

ULMFiT's second stage trains a language model on the text of the task (Howard & Ruder 2018, arXiv
1801.06146, section 3.2).  With its label a document is one of `pretrain.data.batches.clicks`.
"""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from finetune import datasets
from finetune.several import parts
from pretrain.data.corpus.file_patterns import find_files
from pretrain.data.corpus.sources import Document, Source
from pretrain.runtime.errors import UserError


def find_source(*, format: str, path: str, with_label: bool = False, **fields: Any) -> Source:
    """Finds the texts of the examples that `datasets.read` finds.

    Args:
        path: a file, a folder of a format that is one, or a pattern of files, as "*.train.gz".
        with_label: the label of an example is the last line of its document.
        fields: of the format.

    Raises:
        UserError: there is no such file, an example has no label, or as `datasets.read`.
    """
    if not path:
        raise UserError("path is to name a file, a folder or a pattern of files")
    places = [Path(path)] if Path(path).exists() else find_files(path)[0]
    if not places:
        raise UserError(f"there is no {path}")
    inside = [sorted(place.rglob("*")) if place.is_dir() else [place] for place in places]
    files = [x for x in itertools.chain(*inside) if x.is_file()]

    def read() -> Iterator[Document]:
        for place in places:
            for example in datasets.read(format, str(place), **fields).examples:
                yield _write_lines(example, with_label)

    return Source(places[0].name.split(".")[0].lower(), files, read)


def _write_lines(example: datasets.Example, with_label: bool) -> list[str]:
    # A text is a line, whatever line ends it has: a blank one would end the document.
    lines = [" ".join(text.split("\n")) + "\n" for text in parts.iter_texts([example])]
    if not with_label:
        return lines
    if example.get("label") is None:
        raise UserError(f"{example['where']}: with_label=True, and there is no label")
    return [*lines, f"{example['label']}\n"]
