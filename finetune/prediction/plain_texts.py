"""Reads examples of plain text: a line each, from standard input or the command line."""

import itertools
from collections.abc import Iterable, Iterator, Sequence

from finetune.datasets import Example, Read
from finetune.datasets.files import check_count, check_text
from finetune.tasks import TaskData
from pretrain.runtime.errors import UserError

STDIN = "-"  # as the name of a file: standard input, or output
BLOCK_SIZE = 256  # lines
HOW = "; tabs stand between the texts of a line, as --text=$'one\\ttwo'"


def read_blocks(
    lines: Iterable[str], data: TaskData, where: str, columns: Sequence[str] = ()
) -> Iterator[Read]:
    """Yields the examples of lines, some at a time.

    Args:
        lines: of texts, with tabs between those of one example, or of words with blanks between.
        data: of the task, which says what an example is.
        where: names the lines in errors.
        columns: of the texts in the table that the run was trained on, as many as a line has; ():
            it was none.

    Raises:
        UserError: a task's examples are more than texts, there are no lines, or one is blank or
            has other texts.
    """
    if not data.plain_field:
        raise UserError("a line of text is no example of this task: name a file to predict")
    texts = iter(lines)
    first = next(texts, None)
    if first is None:
        raise UserError(f"{where}: there is no text to predict: a line of input is an example")
    numbered = enumerate(itertools.chain([first], texts), 1)
    while block := list(itertools.islice(numbered, BLOCK_SIZE)):
        yield Read(
            [
                _parse_line(line, data.plain_field, columns, f"{where}, line {number}")
                for number, line in block
            ]
        )


def _parse_line(line: str, field: str, columns: Sequence[str], where: str) -> Example:
    if field == "words":
        return {"words": check_text(line, "it", where).split(), "labels": None, "where": where}
    texts = [check_text(text, "a text", where).strip() for text in line.split("\t")]
    check_count(len(texts), columns, where, HOW)
    return {"texts": texts, "label": None, "where": where}
