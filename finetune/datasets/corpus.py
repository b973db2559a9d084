"""Turns labelled examples into a corpus: their texts alone, a document each.

    --config.corpus.source=finetune.datasets.corpus --config.corpus.data.path=TREC.train

ULMFiT's second stage trains a language model on the text of the task (Howard & Ruder 2018, arXiv
1801.06146, section 3.2).  With its label a document is one of `pretrain.data.batches.clicks`.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from finetune import datasets
from finetune.several import parts
from pretrain.data.corpus.sources import Document, Source
from pretrain.runtime.errors import UserError


def find_source(*, format: str, path: str, with_label: bool = False, **fields: Any) -> Source:
    """Finds the texts of the examples that `datasets.read` finds in a file or folder.

    Args:
        with_label: the label of an example is the last line of its document.
        fields: of the format.

    Raises:
        UserError: there is no such file, an example has no label, or as `datasets.read`.
    """
    place = Path(path)
    files = sorted(x for x in place.rglob("*") if x.is_file()) if place.is_dir() else [place]
    if missing := [x for x in files if not x.exists()]:
        raise UserError(f"there is no {missing[0]}")

    def read() -> Iterator[Document]:
        for example in datasets.read(format, path, **fields).examples:
            # A text is a line, whatever line ends it has: a blank one would end the document.
            lines = [" ".join(text.split("\n")) + "\n" for text in parts.iter_texts([example])]
            if with_label and example.get("label") is None:
                raise UserError(f"{example['where']}: with_label=True, and there is no label")
            yield [*lines, f"{example['label']}\n"] if with_label else lines

    return Source(place.name.split(".")[0].lower(), files, read)
