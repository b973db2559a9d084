"""A query and its candidates, and how relevant each of them is: tables of pairs, and JSON lines."""

from pathlib import Path
from typing import Any

from finetune.datasets import Example, Read, files, records, table
from finetune.datasets.files import field, wording
from finetune.datasets.records import Column
from pretrain.runtime.errors import UserError


def read(
    path: str,
    *,
    query: Column = "",
    candidates: Column = "",
    relevance: Column | None = None,
    id: Column = "",
    kind: str = "",
    header: bool = False,
    quoting: bool | None = None,
    encoding: str = "utf-8",
) -> Read:
    """Queries in the order in which they first occur; "" stands for the usual columns.

    Args:
        path: plain, .gz or .zst.  A table has a row "query<TAB>document<TAB>relevance" for each
            pair; the rows of a query need not stand together.  A line of JSON is
            {"query": "...", "candidates": ["...", ...], "relevance": [1, 0, ...]}.
        query, candidates, relevance: columns, by name or by number from 0, or JSON's names;
            relevance="": it is not known.
        id: column of the queries' ids; without it, rows of equal queries are of one query.
        kind: tsv, csv or jsonl; "" goes by the file's extension.
        header, quoting, encoding: see `table.read`.

    Raises:
        UserError: names the file and the line.
    """
    chosen = kind or table._kind(path)
    if chosen not in ("tsv", "csv", "jsonl"):
        raise UserError(f"kind={chosen!r} is not one of tsv, csv, jsonl")
    usual: list[Column] = ["query", "candidates", "relevance"] if chosen == "jsonl" else [0, 1, 2]
    names = [usual[0] if query == "" else query, usual[1] if candidates == "" else candidates]
    names.append(usual[2] if relevance is None else relevance)
    if chosen == "jsonl":
        found = [
            _object(files.parsed(line, where), names, id, where)
            for number, line in files.lines(path, encoding)
            for where in [f"{path}, line {number}"]
        ]
        return Read(found)
    pairs = table.read(
        path,
        texts=names[:2],
        label=names[2],
        id=id,
        number=True,
        kind=chosen,
        header=header,
        quoting=quoting,
        encoding=encoding,
    )
    return Read(_grouped(pairs.examples))


def _grouped(pairs: list[Example]) -> list[Example]:
    """Rows of a query and a document, each query's together."""
    found: dict[str, Example] = {}
    for pair in pairs:
        (query, document), where = pair["texts"], pair["where"]
        own = found.setdefault(
            pair.get("id", query),
            {"query": query, "candidates": [], "relevance": [], "where": where}
            | ({"id": pair["id"]} if "id" in pair else {}),
        )
        if own["query"] != query:
            line = Path(own["where"]).name
            raise UserError(f"{where}: id {pair['id']!r} has another query than at {line}")
        own["candidates"].append(document)
        own["relevance"].append(pair["label"])
    for own in found.values():
        own["relevance"] = None if None in own["relevance"] else own["relevance"]
    return list(found.values())


def _object(record: Any, names: list[Column], id: Column, where: str) -> Example:
    """A line of JSON, checked."""
    query, candidates, relevance = map(str, names)
    texts = field(record, candidates, list, where)
    if not texts:
        raise UserError(f"{where}: there are no candidates")
    given = field(record, relevance, list, where) if relevance else None
    if given is not None and len(given) != len(texts):
        raise UserError(f"{where}: {len(given)} relevances of {len(texts)} candidates")
    found: Example = {
        "query": wording(field(record, query, str, where), repr(query), where),
        "candidates": [wording(x, f"candidate {i}", where) for i, x in enumerate(texts)],
        "relevance": None if given is None else [records.number(x, where) for x in given],
        "where": where,
    }
    if id == "":
        return found
    return {**found, "id": records.plain(field(record, str(id), object, where), where)}
