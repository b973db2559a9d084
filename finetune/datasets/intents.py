"""Reads sentences with an intent and with slots, as of SNIPS and ATIS: a class and tags."""

from collections.abc import Sequence

from finetune.datasets import Example, Read, files
from pretrain.runtime.errors import UserError


def read(
    path: str,
    *,
    ends: Sequence[str] = ("BOS", "EOS"),
    has_labels: bool = True,
    encoding: str = "utf-8",
) -> Read:
    """Reads lines of words, a tab, and their tags, of which the last is the intent.

    An example has the words, their tags as "labels", the intent as "label", and "texts", the words
    joined by blanks.

    Args:
        ends: the words that begin and end a line, which are left out; (): there are none, and the
            intent follows the tags of all words.
        has_labels: False: there are words alone.

    Raises:
        UserError: the file is malformed; names the file and the line.
    """
    if len(ends) not in (0, 2):
        raise UserError(f"ends={tuple(ends)}: name the words that begin and end a line, or none")
    examples: list[Example] = []
    for number, line in files.lines(path, encoding):
        if line.strip():
            examples.append(_read_line(line, ends, has_labels, f"{path}, line {number}"))
    return Read(examples)


def _read_line(line: str, ends: Sequence[str], has_labels: bool, where: str) -> Example:
    text, *columns = line.split("\t")
    if len(columns) != has_labels:
        wanted = "words, a tab and tags" if has_labels else "words alone"
        raise UserError(f"{where}: there should be {wanted}")
    words = text.split()
    if ends:
        if len(words) < 3 or [words[0], words[-1]] != list(ends):
            raise UserError(f"{where}: no words between {ends[0]!r} and {ends[1]!r}")
        words = words[1:-1]
    files.check_text(" ".join(words), "the sentence", where)
    example: Example = {"words": words, "texts": [" ".join(words)], "where": where}
    if not has_labels:
        return example | {"labels": None, "label": None}
    *tags, intent = columns[0].split()[1 if ends else 0 :] or [""]
    if len(tags) != len(words):
        raise UserError(f"{where}: {len(words)} words with {len(tags)} tags and an intent")
    return example | {"labels": tags, "label": intent}
