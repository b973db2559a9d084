"""Reads sentences, each an example by itself: of scored pairs, or of files of lines.

Unsupervised training reads the texts of several sets, whatever scores their pairs have.
"""

from collections.abc import Sequence
from pathlib import Path

from finetune.datasets import Example, Read, similarity
from finetune.datasets.files import check_text
from finetune.datasets.files import lines as read_lines


def read(
    path: str,
    *,
    files: Sequence[str] = (),
    test_files: Sequence[str] = (),
    test_sentences: bool = False,
    lines: bool = False,
) -> Read:
    """Reads the texts of files as examples {"texts": [text], "label": None}.

    Args:
        path: the folder of the files; or a file, if `files` is empty.
        files: of pairs, as `similarity.read` takes them, or folders of STS 2012 to 2016.
        test_files, test_sentences: files that are read if `test_sentences` is True, as those that
            the sentences' vectors are judged on.
        lines: the files have a sentence per line.

    Raises:
        UserError: a file is malformed; names the file and the line.
    """
    names = [*(files or [""]), *(test_files if test_sentences else ())]
    paths = [x for name in names for x in similarity.list_files(str(Path(path) / name))]
    wholes = [_read_lines(x) if lines else similarity.read(x) for x in paths]
    # Repetitions stay: a sentence of many pairs is read as often.
    examples = [
        {"texts": [text], "label": None, "where": x["where"]}
        for whole in wholes
        for x in whole.examples
        for text in x["texts"]
    ]
    notes = [note for whole in wholes for note in whole.notes]
    if test_files and not test_sentences:
        notes.append(f"left out: the sentences of {', '.join(test_files)}")
    return Read(examples, notes)


def _read_lines(path: str) -> Read:
    examples: list[Example] = []
    for line, text in read_lines(path):
        where = f"{path}, line {line}"
        examples.append({"texts": [check_text(text, "the line", where).strip()], "where": where})
    return Read(examples)
