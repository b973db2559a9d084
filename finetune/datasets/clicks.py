"""Reads logs of searches: what was shown of each, in its order, and what was clicked.

What was passed over counts as irrelevant where something below it was clicked, and was read
therefore: "skip above" (Joachims 2002, 10.1145/775047.775067; Meituan's BERT for search).
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from finetune.datasets import Example, Read, files, table
from finetune.datasets.files import Skipped
from finetune.datasets.records import Column, parse_number
from modules import plugins
from pretrain.data.batches.shuffling import shuffle_array
from pretrain.runtime.errors import UserError

NEGATIVES = ("skip_above", "all")


def read(
    path: str,
    *,
    query: Column = "query",
    texts: Sequence[Column] = ("title", "category"),
    clicked: Column = "clicked",
    search: Column = "search",
    position: Column = "",
    negatives: str = "skip_above",
    ratio: int = 0,
    seed: int = 0,
    lists: bool = False,
    features: Sequence[Column] = (),
    scene: Column = "",
    history: Column = "",
    scores: str = "",
    **fields: Any,
) -> Read:
    """Reads a row for each result that was shown; searches without a click are left out.

    An example has "texts", the query and the result's, and "label", "1" or "0"; with `lists` it is
    one of `finetune.tasks.rank` and `.scenes`, of all results of a search.

    Args:
        query: column of the query.
        texts: columns of the result; a list's candidate is these with a blank between.
        clicked: column: above 0, clicked or bought, perhaps by how much it counts in a list.
        search: column that tells searches apart.
        position: column of the place where a result was shown; "": in the order of the file.
        negatives: which of the others are irrelevant: those above the last click, "skip_above",
            or "all"; the rest are left out.
        ratio: so many of them at most for each click, drawn; 0: all.
        seed: of what is drawn.
        lists: an example is a search.
        features: columns of numbers of a result, for lists.
        scene, history: columns, alike for all results of a search, for lists: its scene; what the
            user chose before, the latest last, with blanks between.
        scores: file of `finetune.predict` with a line for each row of this one, whose "value", or
            whose last class's probability, is one more feature.
        fields: others of `table.read`.

    Raises:
        UserError: the file is malformed; names the file and the line.
    """
    if negatives not in NEGATIVES:
        raise UserError(f"negatives={negatives!r} is none of {', '.join(NEGATIVES)}")
    plugins.check_fields(table.read, fields, path)
    if named := fields.keys() & {"label", "id", "extra", "number"}:
        raise plugins.FieldError(f"{min(named)!r} is no field of clicks, which names its columns")
    extra = [x for x in (position, scene, history) if x != ""] + [*features]
    columns: dict[str, Any] = dict(texts=(query, *texts), label=clicked, id=search, extra=extra)
    # Rows are counted off against those of `scores`: none is left out unasked.
    rows = table.read(path, number=True, **columns, **{"empty": "error", **fields})
    for row in rows.examples:
        values = iter(row.pop("extra", ()))
        for name, column in (("position", position), ("scene", scene), ("history", history)):
            row[name] = "" if column == "" else next(values)
        row["features"] = [parse_number(x, row["where"]) for x in values]
    if scores:
        _add_scores(rows.examples, scores)
    searches: dict[str, list[Example]] = {}
    for row in rows.examples:
        searches.setdefault(row["id"], []).append(row)
    examples, skipped = list[Example](), Skipped()
    for number, shown in enumerate(searches.values()):
        # The order of a log is that of writing; users saw that of the page.
        if position != "":
            shown.sort(key=lambda row: parse_number(row["position"], row["where"]))
        # Whoever clicked nothing may have read nothing: of that nothing is learned.
        if not any(row["label"] > 0 for row in shown):
            skipped.add("searches without a click", shown[0]["where"])
            continue
        chosen = _choose_results(shown, negatives, ratio, (seed, number))
        examples += [_join_list(chosen)] if lists else map(_name_label, chosen)
    return Read(examples, [*rows.notes, *skipped.notes()])


def _choose_results(
    shown: list[Example], negatives: str, ratio: int, key: tuple[int, ...]
) -> list[Example]:
    """Chooses what was clicked and what counts as irrelevant, in their order."""
    clicks = [i for i, row in enumerate(shown) if row["label"] > 0]
    # The user may never have seen results below the last click.
    end = clicks[-1] if negatives == "skip_above" else len(shown)
    others = np.array([i for i in range(end) if i not in clicks], int)
    if ratio:
        # By seed and search, so that every process draws the same.
        others = shuffle_array(others, *key)[: ratio * len(clicks)]
    return [shown[i] for i in sorted([*clicks, *others.tolist()])]


def _add_scores(rows: list[Example], path: str) -> None:
    """Adds to the features of each row what a run predicts of it.

    Raises:
        UserError: the file has other rows, or lines that are no predictions.
    """
    lines = [*files.lines(path)]
    if len(lines) != len(rows):
        raise UserError(f"{path}: {len(lines):,} predictions of {len(rows):,} rows")
    for row, (number, line) in zip(rows, lines, strict=True):
        where = f"{path}, line {number}"
        prediction = files.parse_json(line, where)
        # A regression has a value; of a classification the last class is the relevant one.
        value = prediction.get("value") if isinstance(prediction, dict) else None
        if value is None:
            classes = files.field(prediction, "probabilities", dict, where)
            if not classes:
                raise UserError(f"{where}: 'probabilities' has no class")
            value = [*classes.values()][-1]
        row["features"].append(parse_number(value, where))


def _name_label(row: Example) -> Example:
    return {
        "texts": row["texts"],
        "label": str(int(row["label"] > 0)),
        "id": row["id"],
        "where": row["where"],
    }


def _join_list(rows: list[Example]) -> Example:
    """Joins the results of a search; UserError: its rows have several queries, or scenes."""
    first = rows[0]
    for row in rows:
        now, before = ((x["texts"][0], x["scene"], x["history"]) for x in (row, first))
        if now != before:
            raise UserError(f"{row['where']}: search {row['id']!r} was {before} before, not {now}")
    return {
        "query": first["texts"][0],
        "candidates": [" ".join(row["texts"][1:]) for row in rows],
        # Below 0 logs mean nothing worse than not clicked, and gains would be negative.
        "relevance": [max(row["label"], 0.0) for row in rows],
        "features": [row["features"] for row in rows],
        "scene": first["scene"],
        "history": first["history"].split(),
        "id": first["id"],
        "where": first["where"],
    }
