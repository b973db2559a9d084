"""A corpus is prepared once, whole or not at all, and the same whatever happens on the way."""

import errno
import json
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow
import pytest
from ml_collections import ConfigDict
from pyarrow import parquet

from pretrain.data import prepare
from pretrain.data.corpus import input_hashes, prepared_corpus, writer
from pretrain.data.corpus.sources import Source
from pretrain.data.tokenizers import registry
from pretrain.runtime import json_files
from pretrain.runtime.errors import UserError
from tests.support.corpora import TOKENS, hash_files, load, prose, write

REPOSITORY = Path(__file__).parents[3]

# Prepares argv[1] into argv[2]; prints by how many MB the memory in use grew at most.
MEASURE = """
import resource, sys
from pretrain.data import prepare
from pretrain.data.corpus import sources
import sentencepiece

before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
corpus = prepare.prepare(
    source=sys.argv[1], cache=sys.argv[2], sentences=sys.argv[3], held_out=0.5, documents="blank",
    tokens={"name": "sentencepiece", "V": 150, "sample": 2000},
)
assert corpus.manifest["tokens"] > 1e6
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1e3)
"""


def start(*words: str) -> subprocess.Popen:
    pipe = subprocess.PIPE
    return subprocess.Popen(
        [sys.executable, *words], cwd=REPOSITORY, stdout=pipe, stderr=pipe, text=True
    )


def prepare_until(change: int, source: str, cache: Path, processes: int = 1) -> subprocess.Popen:
    """Starts a process that kills itself at its n-th change to a file."""
    words = (source, str(cache), str(change), str(processes))
    return start("-m", "tests.support.corpora", *words)


def record_calls(monkeypatch, name: str) -> list[tuple]:
    """Returns the arguments of every call of a function of `writer` from now on."""
    calls: list[tuple] = []
    real = getattr(writer, name)
    monkeypatch.setattr(writer, name, lambda *args, **n: calls.append(args) or real(*args, **n))
    return calls


def test_a_prepared_corpus_is_not_prepared_nor_hashed_again(source, corpus, monkeypatch):
    monkeypatch.setattr(writer, "write_parts", None)
    monkeypatch.setattr(input_hashes, "hash_file", None)
    assert load(source, corpus.folder.parent).fingerprint == corpus.fingerprint


def test_the_same_text_elsewhere_is_the_same_corpus(cache, copy, tmp_path):
    assert load(write(tmp_path / "elsewhere"), cache).folder == copy


@pytest.mark.parametrize(
    "fields",
    [
        {"sentences": "line"},
        {"sentences": "whole"},
        {"documents": "blank"},
        {"detokenise": "wikitext"},
        {"tokens": TOKENS | {"V": 120}},
        {"tokens": TOKENS | {"sample": 101}},
    ],
)
def test_other_options_are_another_corpus(source, corpus, cache, copy, fields):
    other = load(source, cache, **fields)
    assert other.folder != copy
    assert other.fingerprint != corpus.fingerprint or "sentences" in fields


def test_files_are_held_out_by_their_names(source, corpus, cache):
    files = sorted(Path(source.removeprefix("text:")).parent.glob("*.txt"))
    named = load(source, cache, held_out_files="*1.txt")
    assert named.fingerprint == corpus.fingerprint
    expected = [i for i, file in enumerate(files) if file.stem.endswith("1")]
    assert named.splits["held_out"].tolist() == expected
    assert sorted([*named.splits["train"], *expected]) == named.splits["all"].tolist()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (dict(held_out_files="*.valid"), "names 0 of 12 files, by their names without folders"),
        (dict(held_out_files="*"), "names 12 of 12 files"),
    ],
)
def test_files_that_are_no_split_are_refused(source, cache, fields, message):
    with pytest.raises(UserError, match=message):
        load(source, cache, **fields)


def test_documents_that_are_not_by_file_have_no_files_to_hold_out():
    shards = Source("tfds-x", [Path("train-0.rio"), Path("valid-0.rio")], list)
    with pytest.raises(UserError, match="'tfds-x' are not by file, and held_out draws a share"):
        prepare.find_held_out(shards, "valid*")


@pytest.mark.parametrize("kind", ["jsonl", "parquet", "text"])
def test_all_documents_of_a_named_file_are_held_out(tmp_path, cache, kind):
    names = [f"{name}-{n}" for name in ("train", "valid") for n in range(3)]
    texts = {name: prose(n, 20 + n, per_paragraph=100).strip() for n, name in enumerate(names)}
    texts["train-2"] = ""
    shards = {"train-0": ["train-0", "train-1", "train-2"], "valid-0": ["valid-0"]}
    shards |= {"train-1": ["train-0"], "valid-1": ["valid-1", "valid-2"]}
    (tmp_path / kind).mkdir()
    for shard, names in shards.items():
        path, rows = tmp_path / kind / f"{shard}.{kind}", [texts[name] for name in names]
        if kind == "parquet":
            parquet.write_table(pyarrow.table({"text": rows}), path)
        elif kind == "jsonl":
            path.write_text("".join(json.dumps({"text": row}) + "\n" for row in rows))
        else:
            path.with_suffix(".txt").write_text("\n\n".join(rows))
    fields = dict(held_out_files="valid*", documents="blank" if kind == "text" else "file")
    for _ in range(2):  # prepared, and opened
        corpus = load(f"{kind}:{tmp_path / kind}", cache, **fields)
        # In the order of the files: train-0 has two with text, train-1 one.
        assert corpus.splits["train"].tolist() == [0, 1, 2]
        assert corpus.splits["held_out"].tolist() == [3, 4, 5]
    expected = [texts[name] for name in ("valid-0", "valid-1", "valid-2")]
    assert corpus.words[corpus.splits["held_out"]].tolist() == [len(x.split()) for x in expected]


def test_a_corpus_of_before_files_were_counted_says_what_to_do(source, tmp_path):
    corpus = load(source, tmp_path / "data", documents="blank")
    path = corpus.folder / prepared_corpus.MANIFEST
    manifest = json_files.read_sealed(path)
    assert sum(manifest.pop(prepared_corpus.BY_INPUT)) == manifest["documents"]
    json_files.write_sealed(path, manifest)
    with pytest.raises(UserError, match="delete it, and it is made anew"):
        load(source, tmp_path / "data", documents="blank", held_out_files="*1.txt")


def test_changed_inputs_are_noticed_and_named(tmp_path, capsys):
    source = write(tmp_path / "text")
    old = load(source, tmp_path)
    (tmp_path / "text" / "003.txt").write_text(prose(99, 60))
    (tmp_path / "text" / "100.txt").write_text(prose(98, 10))
    (tmp_path / "text" / "004.txt").unlink()
    capsys.readouterr()
    new = load(source, tmp_path)
    message = capsys.readouterr().err
    assert new.fingerprint != old.fingerprint
    assert old.folder.exists()
    for words in ("003.txt changed", "100.txt is new", "004.txt is gone"):
        assert words in message


def test_text_that_changes_while_it_is_read_is_refused(tmp_path, monkeypatch):
    source = write(tmp_path / "text")

    def write_and_change(*args, write=writer.write_parts):
        (tmp_path / "text" / "000.txt").write_text("Something else.\n")
        return write(*args)

    monkeypatch.setattr(writer, "write_parts", write_and_change)
    with pytest.raises(UserError, match="changed while it was read"):
        load(source, tmp_path)
    assert not list(tmp_path.glob("*/manifest.json"))


SLOW = [pytest.param(n, marks=pytest.mark.slow) for n in (2, 5, 9, 13, 20, 27, 34, 56, 72, 80)]


@pytest.mark.parametrize("change", [41, *SLOW])
def test_a_killed_run_is_continued_to_the_same_bytes(source, corpus, tmp_path, monkeypatch, change):
    killed = prepare_until(change, source, tmp_path)
    killed.communicate()
    assert killed.returncode == -signal.SIGKILL
    finished = len(list(tmp_path.glob("*.partial/part-*.npz")))
    encoded, joined = (record_calls(monkeypatch, name) for name in ("encode_part", "join_parts"))
    monkeypatch.setattr(writer, "PART", 3000)
    if finished:  # then the vocabulary is not learned again
        monkeypatch.setattr(registry, "learn", None)
    assert hash_files(load(source, tmp_path).folder) == hash_files(corpus.folder)
    assert len(encoded) == sum(len(paths) - finished for paths, *_ in joined)
    assert not list(tmp_path.glob("*.partial"))
    assert finished > 1 or change != 41


def test_several_processes_make_the_same_bytes_also_after_a_kill(
    source, corpus, tmp_path, monkeypatch
):
    monkeypatch.setattr(writer, "PART", 3000)
    whole = prepare_until(1000, source, tmp_path / "whole", processes=2)
    killed = prepare_until(41, source, tmp_path / "killed", processes=3)
    assert whole.communicate()[0].strip() == corpus.fingerprint
    assert killed.communicate()[0] == ""
    assert killed.returncode == -signal.SIGKILL
    for name, processes in (("whole", 1), ("killed", 2)):
        folder = load(source, tmp_path / name, processes=processes).folder
        assert hash_files(folder) == hash_files(corpus.folder)
        assert [path.name for path in folder.parent.glob("*.partial")] == []


def test_two_at_once_make_one_corpus(source, corpus, tmp_path):
    two = [prepare_until(1000, source, tmp_path) for _ in range(2)]
    outputs = [process.communicate() for process in two]
    assert [process.returncode for process in two] == [0, 0], outputs
    assert {out.strip() for out, _ in outputs} == {corpus.fingerprint}
    assert sum("learning the vocabulary" in err for _, err in outputs) == 1


def test_a_full_disk_leaves_parts_for_the_next_run(source, corpus, tmp_path, monkeypatch):
    def fail(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(writer.Array, "append", fail)
        with pytest.raises(UserError, match="no space left"):
            load(source, tmp_path)
    assert not list(tmp_path.glob("*/manifest.json"))
    assert hash_files(load(source, tmp_path).folder) == hash_files(corpus.folder)


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"fine\n\xff", r"007\.txt, line 2: .* offset 5"), (b" \n\n \n", "holds no text")],
)
def test_errors_in_the_text_leave_nothing_of_a_corpus(tmp_path, content, message):
    (tmp_path / "007.txt").write_bytes(content)
    with pytest.raises(UserError, match=message):
        load(f"text:{tmp_path}/*.txt", tmp_path / "data", held_out=0)
    assert [path.name for path in (tmp_path / "data").iterdir()] == [input_hashes.REMEMBERED]


def test_a_file_that_cannot_be_read_now_leaves_parts_for_the_next_run(
    source, corpus, tmp_path, monkeypatch
):
    def fail(*_):
        raise UserError("it cannot be read") from OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(writer, "join_parts", fail)
        with pytest.raises(UserError, match="it cannot be read"):
            load(source, tmp_path)
    assert list(tmp_path.glob("*.partial/part-*.npz"))
    monkeypatch.setattr(registry, "learn", None)
    assert hash_files(load(source, tmp_path).folder) == hash_files(corpus.folder)


@pytest.mark.parametrize(
    ("cache", "message"),
    [
        ("file/data", "cache='file/data': no such folder can be made: Not a"),
        ("gs://bucket/data", "gs://bucket"),
    ],
)
def test_a_cache_that_cannot_be_made_is_refused(source, tmp_path, monkeypatch, cache, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=message):
        prepare.prepare(source=source, cache=cache, tokens=TOKENS)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_the_program_prints_what_the_corpus_holds(source, corpus, capsys):
    section = dict(source=source, cache=str(corpus.folder.parent), tokens=TOKENS)
    prepare.main(ConfigDict(dict(corpus=section)))
    output = capsys.readouterr().out
    for name in ("documents", "sentences", "words", "bytes", "tokens"):
        assert f"{name:<11}{corpus.manifest[name]:>15,}" in output
    for words in ("vocabulary", str(corpus.folder)):
        assert words in output


def test_preparing_does_not_import_jax():
    modules = "pretrain.data.prepare, pretrain.data.batches.lanes"
    script = f"import sys, {modules}; print('jax' in sys.modules)"
    assert start("-c", script).communicate()[0].strip() == "False"


@pytest.mark.slow
@pytest.mark.parametrize("sentences", ["split", "whole"])
def test_memory_does_not_follow_the_length_of_a_line(tmp_path, sentences):
    (tmp_path / "text").mkdir()
    with (tmp_path / "text" / "line.txt").open("w") as file:
        file.write("One line.\n\n")
        for block in range(200):
            words = prose(block % 7, 900).replace("\n", " ")
            file.write(words * (1_000_000 // len(words)))
    process = start("-c", MEASURE, f"text:{tmp_path}/text/*.txt", str(tmp_path), sentences)
    output, errors = process.communicate()
    assert process.returncode == 0, errors
    assert float(output) < 250


@pytest.mark.parametrize(
    ("documents", "held_out", "parts", "is_enough"),
    [
        ("file", 0.05, 2, False),
        ("blank", 0.05, 1, False),
        ("blank", 0.05, 2, True),
        ("blank", 0.9, 4, False),
        ("blank", 0.9, 6, True),
        ("blank", 0.0, 1, True),
    ],
)
def test_too_few_documents_to_hold_out_are_refused_before_the_text_is_hashed(
    tmp_path, monkeypatch, documents, held_out, parts, is_enough
):
    monkeypatch.setattr(input_hashes, "hash_inputs", stop)
    (tmp_path / "a.txt").write_text("\n\n".join(["A line."] * parts))
    source, cache = f"text:{tmp_path}/a.txt", str(tmp_path / "cache")
    options = dict(source=source, cache=cache, documents=documents, held_out=held_out)
    with pytest.raises(
        HashedError if is_enough else UserError, match="" if is_enough else "held_out="
    ):
        prepare.prepare(tokens=TOKENS, **options)


def test_a_missing_text_key_is_refused_before_the_text_is_hashed(tmp_path, monkeypatch):
    monkeypatch.setattr(input_hashes, "hash_inputs", stop)
    (tmp_path / "a.jsonl").write_text('{"body": "A line."}\n')
    with pytest.raises(UserError, match="there is no 'text', but 'body'"):
        prepare.prepare(tokens=TOKENS, source=f"jsonl:{tmp_path}", cache=str(tmp_path / "cache"))


class HashedError(Exception):
    """The text would be hashed now."""


def stop(*_):
    raise HashedError
