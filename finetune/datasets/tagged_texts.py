"""Reads rows of texts, a label, and a tag for each word of every text: relevance and entities."""

from collections.abc import Sequence
from typing import Any

from finetune.datasets import Example, Read, table
from finetune.datasets.records import Column
from modules import plugins
from pretrain.runtime.errors import UserError

UNITS = {"characters": lambda text: [*"".join(text.split())], "words": str.split}


def read(
    path: str,
    *,
    texts: Sequence[Column] = ("query", "title"),
    tags: Sequence[Column] = ("query_tags", "title_tags"),
    units: str = "characters",
    **fields: Any,
) -> Read:
    """Reads examples that `finetune.tasks.joint` learns a class and tags of.

    An example has "texts" and "label", as of `table.read`; "words", those of all texts, their
    "labels", and "counts", the words of each text.

    Args:
        texts: columns, in the order in which a row has them.
        tags: columns with the tags of each text's words, with blanks between them; (): there are
            none.
        units: what has a tag: "characters" but blanks, or "words", which blanks part.
        fields: `label` and others of `table.read`.

    Raises:
        UserError: the file is malformed; names the file and the line.
    """
    if units not in UNITS:
        raise UserError(f"units={units!r} is none of {', '.join(UNITS)}")
    if tags and len(tags) != len(texts):
        raise UserError(f"tags={tuple(tags)}: name a column for each of {len(texts)} texts")
    plugins.check_fields(table.read, fields, path)
    # A title without tags would be two columns apart: that is a mistake, and no gap.
    rows = table.read(path, texts=(*texts, *tags), **{"empty": "error", **fields})
    return Read([_part_columns(x, len(texts), units) for x in rows.examples], rows.notes)


def _part_columns(row: Example, count: int, units: str) -> Example:
    """Parts the cells of a row in texts and their tags."""
    texts, tags = row["texts"][:count], [cell.split() for cell in row["texts"][count:]]
    words = [UNITS[units](text) for text in texts]
    for text, cell in zip(words, tags, strict=False):  # there may be no tags
        if len(cell) != len(text):
            raise UserError(f"{row['where']}: {len(text)} {units} with {len(cell)} tags")
    return row | {
        "texts": texts,
        "words": [word for text in words for word in text],
        "labels": [tag for cell in tags for tag in cell] if tags else None,
        "counts": [len(text) for text in words],
    }
