"""Pairs of a table and lists of JSON become the same queries."""

import json

import pytest

from finetune import datasets
from pretrain.runtime.errors import UserError

PAIRS = [
    ("how far", "two miles", 1),
    ("how far", "blue", 0),
    ("why", "because", 2.5),
    ("why", "so", 0),
    ("how far", "a day's way", 1),
]


def read(folder, content, name="a.tsv", **fields):
    path = folder / name
    path.write_text(content)
    return datasets.read("ranking", str(path), **fields).examples


def rows(pairs, delimiter="\t"):
    return "".join(delimiter.join(map(str, row)) + "\n" for row in pairs)


def plain(examples):
    return [(x["query"], x["candidates"], x["relevance"]) for x in examples]


EXPECTED = [
    ("how far", ["two miles", "blue", "a day's way"], [1, 0, 1]),
    ("why", ["because", "so"], [2.5, 0]),
]


def test_a_query_s_rows_are_one_example_wherever_they_stand(tmp_path):
    found = read(tmp_path, rows(PAIRS))
    assert plain(found) == EXPECTED
    assert [x["where"].rpartition("/")[2] for x in found] == ["a.tsv, line 1", "a.tsv, line 3"]


def test_tables_and_json_lines_give_the_same_examples(tmp_path):
    lines = "".join(
        json.dumps(dict(query=q, candidates=c, relevance=r)) + "\n" for q, c, r in EXPECTED
    )
    assert plain(read(tmp_path, lines, "a.jsonl")) == EXPECTED
    assert plain(read(tmp_path, rows(PAIRS, ","), "a.csv")) == EXPECTED
    named = "relevance\tdocument\tq\n" + rows((r, d, q) for q, d, r in PAIRS)
    fields = dict(header=True, query="q", candidates="document", relevance="relevance")
    assert plain(read(tmp_path, named, **fields)) == EXPECTED


def test_ids_tell_equal_queries_apart(tmp_path):
    content = "1\twhy\ta\t1\n2\twhy\tb\t0\n1\twhy\tc\t0\n"
    found = read(tmp_path, content, id=0, query=1, candidates=2, relevance=3)
    assert [(x["id"], x["candidates"]) for x in found] == [("1", ["a", "c"]), ("2", ["b"])]
    line = '{"n": 4, "query": "why", "candidates": ["a"], "relevance": [1]}'
    assert read(tmp_path, line, "a.jsonl", id="n")[0]["id"] == "4"


def test_lines_of_json_may_be_pairs(tmp_path):
    lines = "".join(json.dumps(dict(query=q, title=d, relevance=r)) + "\n" for q, d, r in PAIRS)
    assert plain(read(tmp_path, lines, "a.jsonl", pairs=True, candidates="title")) == EXPECTED


def test_candidates_of_other_queries_are_drawn_as_irrelevant(tmp_path):
    alone = [(f"q{n}", f"c{n}", 2) for n in range(9)]
    found = read(tmp_path, rows([*alone, ("q0", "c9", 1)]), random_negatives=4)
    for x in found:
        own = 2 if x["query"] == "q0" else 1
        assert x["relevance"] == [2, 1][:own] + [0] * 4
        assert len(set(x["candidates"])) == own + 4
    assert found == read(tmp_path, rows([*alone, ("q0", "c9", 1)]), random_negatives=4)
    assert found != read(tmp_path, rows([*alone, ("q0", "c9", 1)]), random_negatives=4, seed=1)
    few = read(tmp_path, rows(alone[:2]), random_negatives=4, relevance="")
    assert plain(few) == [("q0", ["c0", "c1"], None), ("q1", ["c1", "c0"], None)]


def test_relevance_may_be_unknown(tmp_path):
    found = read(tmp_path, rows(row[:2] for row in PAIRS), relevance="")
    assert plain(found) == [(query, own, None) for query, own, _ in EXPECTED]
    line = '{"query": "why", "candidates": ["a", "b"]}'
    assert plain(read(tmp_path, line, "a.jsonl", relevance="")) == [("why", ["a", "b"], None)]


OBJECT = dict(query="why", candidates=["a", "b"], relevance=[1, 0])


@pytest.mark.parametrize(
    ("content", "fields", "message"),
    [
        ("why\ta\t1\nwhy\tb\n", {}, "line 2: 2 columns, and there should be 3"),
        ("why\ta\tx\n", {}, "line 1: the label 'x' is not a number"),
        ("why\t\t1\n", {}, "line 1: column 1 is empty"),
        (
            "1\twhy\ta\t1\n1\twho\ta\t1\n",
            dict(id=0, query=1, candidates=2, relevance=3),
            "line 2: id '1' has another query than at a.tsv, line 1",
        ),
        ("why\ta\t1\n", dict(kind="xml"), "kind='xml' is not one of tsv, csv, jsonl"),
        (OBJECT | dict(relevance=[1]), {}, "line 1: 1 relevances of 2 candidates"),
        (OBJECT | dict(relevance=[1, "x"]), {}, "line 1: the label 'x' is not a number"),
        (OBJECT | dict(candidates=[]), {}, "line 1: there are no candidates"),
        (OBJECT | dict(candidates=["a", ""]), {}, "line 1: candidate 1 is empty"),
        (OBJECT | dict(query=3), {}, "line 1: 'query' should be text"),
        (dict(query="why", candidates=["a"]), {}, "line 1: has no 'relevance'"),
    ],
)
def test_what_is_wrong_is_named_by_file_and_line(tmp_path, content, fields, message):
    name = "a.jsonl" if isinstance(content, dict) else "a.tsv"
    text = json.dumps(content) if isinstance(content, dict) else content
    with pytest.raises(UserError) as caught:
        read(tmp_path, text, name, **fields)
    assert message in str(caught.value)
