"""Reads trees with a label at every node, as of the Stanford Sentiment Treebank."""

import re
from collections.abc import Mapping, Sequence

from finetune.datasets import Example, Read, files
from finetune.datasets.files import Skipped
from pretrain.runtime.errors import UserError

# A node is "(label children)", a leaf "(label word)"; a bracket in the text is written as a word.
PARTS = re.compile(r"[()]|[^\s()]+")
# Penn Treebank's spelling of what its own format or a lisp reader would misread.
ESCAPES = {"-LRB-": "(", "-RRB-": ")", "-LSB-": "[", "-RSB-": "]", "-LCB-": "{", "-RCB-": "}"}
TWO: Mapping[str, str] = {"0": "0", "1": "0", "3": "1", "4": "1"}


def read(
    path: str,
    *,
    phrases: bool = False,
    classes: int = 5,
    labels: Mapping[str, str] | Sequence[str] | None = None,
    encoding: str = "utf-8",
) -> Read:
    """Reads one tree per line, as a text with the label of its root.

    Args:
        phrases: every node is an example, and a text that occurs again is not (Socher et al. 2013:
            to train on; what is tested are whole sentences).
        classes: 5: the labels as they are; 2: 0 and 1 are "0", 3 and 4 are "1", and neutral
            texts, 2, are left out.
        labels: the permitted labels, or {label in the file: its new name}; None: by `classes`.

    Raises:
        UserError: the file is malformed (names the file and the line), or `classes` is neither.
    """
    if classes not in (2, 5):
        raise UserError(f"classes={classes}: there are 5, or 2 without the neutral")
    names = files.label_names("01234" if labels is None else labels)
    examples: list[Example] = []
    known: set[str] = set()
    skipped = Skipped()
    for number, line in files.lines(path, encoding):
        where = f"{path}, line {number}"
        for raw, text in _read_nodes(line, where)[: None if phrases else 1]:
            label = files.rename_label(raw, names, where)
            if phrases and text in known:
                continue
            known.add(text)
            if classes == 2 and label not in TWO:
                skipped.add("neutral texts", where)
                continue
            label = TWO[label] if classes == 2 else label
            examples.append({"texts": [text], "label": label, "where": where})
    return Read(examples, skipped.notes())


def _read_nodes(line: str, where: str) -> list[tuple[str, str]]:
    """Reads (label, text) of every node, the root first."""
    nodes: list[tuple[str, str]] = []
    words: list[str] = []
    above: list[tuple[int, int]] = []  # of the open nodes: number, words before it
    parts = PARTS.findall(line)
    for place, part in enumerate(parts):
        if part == "(":
            above.append((len(nodes), len(words)))
            nodes.append(("", ""))
        elif not above:
            raise UserError(f"{where}: {part!r} stands in no brackets")
        elif part == ")":
            number, begin = above.pop()
            nodes[number] = (nodes[number][0], " ".join(words[begin:]))
            if not nodes[number][1]:
                raise UserError(f"{where}: a node of the tree has no words")
            if not above and place + 1 < len(parts):
                raise UserError(f"{where}: there is something behind the tree")
        elif parts[place - 1] == "(":
            nodes[above[-1][0]] = (part, "")
        else:
            words.append(ESCAPES.get(part, part.replace("\\/", "/").replace("\\*", "*")))
    if above or not nodes:
        raise UserError(
            f"{where}: brackets of the tree are not closed" if nodes else f"{where}: no tree"
        )
    return nodes
