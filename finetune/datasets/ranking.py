"""Reads queries with candidates and their relevances: tables of pairs, and JSON lines."""

from pathlib import Path
from typing import Any

import numpy as np

from finetune.datasets import Example, Read, files, records, table
from finetune.datasets.files import check_text, field
from finetune.datasets.records import Column
from pretrain.data.batches.shuffling import make_rng
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
    delimiter: str = "",
    pairs: bool = False,
    random_negatives: int = 0,
    seed: int = 0,
) -> Read:
    """Reads queries in the order in which they first occur; "" takes the usual columns.

    Args:
        path: plain, .gz or .zst.  A table has a row "query<TAB>document<TAB>relevance" for each
            pair; the rows of a query need not stand together.  A line of JSON is
            {"query": "...", "candidates": ["...", ...], "relevance": [1, 0, ...]}.
        query, candidates, relevance: columns, by name or by number from 0, or JSON's names;
            relevance="" where it is not known.
        id: column of the queries' ids; without it, rows of equal text are one query.
        kind: tsv, csv or jsonl; "" goes by the file's extension.
        header, quoting, encoding, delimiter: see `table.read`.
        pairs: a line of JSON is a pair, as the row of a table, with a "candidate".
        random_negatives: candidates of other queries that join those of each, as irrelevant.
        seed: of these.

    Raises:
        UserError: the file is malformed; names the file and the line.
    """
    chosen = kind or table.kind_of(path)
    if chosen not in ("tsv", "csv", "jsonl"):
        raise UserError(f"kind={chosen!r} is not one of tsv, csv, jsonl")
    # Both kinds of files have usual names for what is not given.
    candidate = "candidate" if pairs else "candidates"
    usual: list[Column] = ["query", candidate, "relevance"] if chosen == "jsonl" else [0, 1, 2]
    names = [usual[0] if query == "" else query, usual[1] if candidates == "" else candidates]
    names.append(usual[2] if relevance is None else relevance)
    if chosen == "jsonl" and not pairs:
        examples = [
            _example(files.parse_json(line, where), names, id, where)
            for number, line in files.lines(path, encoding)
            for where in [f"{path}, line {number}"]
        ]
        return Read(_add_random(examples, random_negatives, seed))
    # A table is one of texts and a number; only the grouping is new.
    rows = table.read(
        path,
        texts=names[:2],
        label=names[2],
        id=id,
        number=True,
        kind=chosen,
        header=header,
        quoting=quoting,
        encoding=encoding,
        delimiter=delimiter,
        empty="error",
    )
    return Read(_add_random(_group_by_query(rows.examples), random_negatives, seed))


def _group_by_query(pairs: list[Example]) -> list[Example]:
    examples: dict[str, Example] = {}
    for pair in pairs:
        (query, document), where = pair["texts"], pair["where"]
        example = examples.setdefault(
            pair.get("id", query),
            {"query": query, "candidates": [], "relevance": [], "where": where}
            | ({"id": pair["id"]} if "id" in pair else {}),
        )
        # Two queries under one id would mix their candidates.
        if example["query"] != query:
            line = Path(example["where"]).name
            raise UserError(f"{where}: id {pair['id']!r} has another query than at {line}")
        example["candidates"].append(document)
        example["relevance"].append(pair["label"])
    for example in examples.values():
        # A query of which some relevance is unknown cannot be scored.
        if None in example["relevance"]:
            example["relevance"] = None
    return list(examples.values())


def _add_random(examples: list[Example], count: int, seed: int) -> list[Example]:
    """Adds to each example candidates of others, as many as there are up to `count`."""
    if not count:
        return examples
    every = list(dict.fromkeys(text for x in examples for text in x["candidates"]))
    return [
        # Keyed by the query's number: a file that grows keeps the draws of its others.
        _join_others(example, every, count, make_rng(seed, number))
        for number, example in enumerate(examples)
    ]


def _join_others(
    example: Example, every: list[str], count: int, rng: np.random.Generator
) -> Example:
    listed = set(example["candidates"])
    # More than are needed, as some may be its own, or come twice.
    numbers = (rng.random(2 * (count + len(listed))) * len(every)).astype(int)
    others = [x for x in dict.fromkeys(every[i] for i in numbers) if x not in listed][:count]
    relevance = example["relevance"]
    return example | {
        "candidates": [*example["candidates"], *others],
        "relevance": relevance and [*relevance, *[0.0] * len(others)],
    }


def _example(record: Any, names: list[Column], id: Column, where: str) -> Example:
    query, candidates, relevance = map(str, names)
    texts = field(record, candidates, list, where)
    if not texts:  # nothing to rank, and no score is defined
        raise UserError(f"{where}: there are no candidates")
    grades = field(record, relevance, list, where) if relevance else None
    if grades is not None and len(grades) != len(texts):
        raise UserError(f"{where}: {len(grades)} relevances of {len(texts)} candidates")
    example: Example = {
        "query": check_text(field(record, query, str, where), repr(query), where),
        "candidates": [check_text(x, f"candidate {i}", where) for i, x in enumerate(texts)],
        "relevance": None if grades is None else [records.parse_number(x, where) for x in grades],
        "where": where,
    }
    if id == "":
        return example
    return {**example, "id": records.plain_name(field(record, str(id), object, where), where)}
