"""Reads examples of plain text: a line each, from standard input or the command line."""

import itertools
from collections.abc import Iterable, Iterator

from finetune.datasets import Example, Read
from finetune.datasets.files import check_text
from finetune.tasks import TaskData
from pretrain.runtime.errors import UserError

STDIN = "-"  # as the name of a file: standard input, or output
BLOCK_SIZE = 256  # lines


def read_blocks(lines: Iterable[str], data: TaskData, where: str) -> Iterator[Read]:
    """Yields the examples of lines, some at a time.

    Args:
        lines: of texts, with tabs between those of one example, or of words with blanks between.
        data: of the task, which says what an example is.
        where: names the lines in errors.

    Raises:
        UserError: a task's examples are more than texts, or a line is blank.
    """
    if not data.plain_field:
        raise UserError("a line of text is no example of this task: name a file to predict")
    numbered = enumerate(lines, 1)
    while block := list(itertools.islice(numbered, BLOCK_SIZE)):
        yield Read([_parse_line(line, data.plain_field, f"{where}, line {n}") for n, line in block])


def _parse_line(line: str, field: str, where: str) -> Example:
    line = line.rstrip("\r\n")
    if field == "words":
        return {"words": check_text(line, "it", where).split(), "labels": None, "where": where}
    texts = [check_text(text, "a text", where).strip() for text in line.split("\t")]
    return {"texts": texts, "label": None, "where": where}
