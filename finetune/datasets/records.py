"""A row of named or numbered cells becomes an example of some texts and a label."""

import dataclasses
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from finetune.datasets import Example, Read
from finetune.datasets.files import Skipped, labelled, wording
from pretrain.runtime.errors import UserError

Column = str | int


@dataclasses.dataclass(frozen=True)
class Layout:
    """Which cells are what; see `finetune.datasets.table.read` for the fields."""

    texts: Sequence[Column]
    label: Column
    id: Column
    labels: Mapping[str, str] | None
    number: bool
    skip: Sequence[str]
    empty: bool
    titles: Sequence[Column] = ()  # what errors call the texts, if other than `texts`
    until: str = ""

    def columns(self) -> list[Column]:
        """All that a row has to have."""
        return [*self.texts, *(column for column in (self.label, self.id) if column != "")]

    def example(self, row: Any, where: str) -> Example:
        """Texts lose the blanks around them; UserError names what is wrong with the row."""
        found: Example = {
            "texts": [
                self._text(row[column], title, where)
                for column, title in zip(self.texts, self.titles or self.texts, strict=True)
            ],
            "label": None if self.label == "" else self._label(row[self.label], where),
            "where": where,
        }
        return found if self.id == "" else {**found, "id": plain(row[self.id], where)}

    def skips(self, row: Any) -> bool:
        """Whether the label says that the row is to be left out."""
        return self.label != "" and row[self.label] in self.skip

    def _text(self, value: Any, title: Column, where: str) -> str:
        name = repr(title) if isinstance(title, str) else f"column {title}"
        return wording(value, name, where, self.empty).strip()

    def _label(self, value: Any, where: str) -> str | float:
        if self.number:
            return number(value, where)
        name = plain(value, where)
        return labelled(name.split(self.until)[0] if self.until else name, self.labels, where)


def examples(rows: Iterable[tuple[str, Any]], layout: Layout, cells: Any, strict: bool) -> Read:
    """`rows` are places and what is there; `cells(row, where)` is what the layout looks into."""
    found, skipped = [], Skipped()
    for where, raw in rows:
        try:
            row = cells(raw, where)
            if layout.skips(row):
                skipped.add(f"rows of label {row[layout.label]!r}", where)
            else:
                found.append(layout.example(row, where))
        except UserError as error:
            if strict:
                raise
            skipped.add("bad rows", str(error))
    return Read(found, skipped.notes())


def plain(value: Any, where: str) -> str:
    """A name from a cell; JSON's numbers and booleans as they are written there."""
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, bool | int | float):
        return json.dumps(value)
    raise UserError(f"{where}: a label or id should be text or a number, and is {value!r:.60}")


def number(value: Any, where: str) -> float:
    """A label to regress to; UserError if it is not a finite number."""
    try:
        found = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        found = math.nan
    if not math.isfinite(found):
        raise UserError(f"{where}: the label {value!r:.60} is not a number")
    return found
