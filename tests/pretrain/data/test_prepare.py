"""A corpus is prepared once, whole or not at all, and the same whatever happens on the way."""

import errno
import hashlib
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import fsspec
import pytest

from pretrain.data import prepare, tokenizers
from pretrain.data.corpus import format as corpora
from pretrain.data.corpus import input_hashes, writer
from pretrain.runtime.errors import UserError
from tests.support.corpora import TOKENS, prose
from tests.support.corpora import write as write_corpus

REPOSITORY = Path(__file__).parents[3]

# Prepares argv[1] into argv[2] in small parts, and kills itself where argv[3] says.
PREPARE = """
import os, signal, sys
from pretrain.data import prepare
from pretrain.data.corpus import format as corpus; from pretrain.data.corpus import writer as parts
from tests.support import corpora as data_corpora

source, cache, dies = sys.argv[1:]
parts.PART, encode, encoded = 3000, parts.encode, []

def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)

def encode_three(*args, **named):
    encoded.append(1)
    return die() if len(encoded) > 3 else encode(*args, **named)

if dies == "after the vocabulary":
    parts.write = die
if dies == "among the tokens":
    parts.encode = encode_three
if dies == "before the manifest":
    corpus.write_manifest = die
made = prepare.prepare(source=source, cache=cache, tokens=data_corpora.TOKENS)
print(made.folder, made.fingerprint)
"""

# Prepares argv[1] into argv[2]; prints by how many MB the memory in use grew at most.
MEASURE = """
import resource, sys
from pretrain.data import prepare
from pretrain.data.corpus import sources
import sentencepiece

before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
made = prepare.prepare(
    source=sys.argv[1], cache=sys.argv[2], sentences=sys.argv[3], held_out=0.5, documents="blank",
    tokens={"name": "sentencepiece", "V": 150, "sample": 2000},
)
assert made.manifest["tokens"] > 1e6
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1e3)
"""


def start(script: str, *args: str) -> subprocess.Popen:
    command = [sys.executable, "-c", script, *args]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=REPOSITORY, stdout=pipe, stderr=pipe, text=True)


def load(source: str, cache: Path, **fields) -> corpora.Corpus:
    return prepare.prepare(**{"source": source, "cache": str(cache), "tokens": TOKENS} | fields)


def contents(folder: Path) -> dict[str, str]:
    """Every file of a corpus and its sha256."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    digests = {
        str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest() for p in files
    }
    return digests


def spy(monkeypatch, name: str) -> list[tuple]:
    """The arguments of every call of a function of `parts` from now on."""
    calls: list[Any] = []
    real = getattr(writer, name)

    def wrapper(*args, **named):
        calls.append(args)
        return real(*args, **named)

    monkeypatch.setattr(writer, name, wrapper)
    return calls


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("source"))


@pytest.fixture(scope="module")
def made(source, tmp_path_factory):
    """A corpus that nobody may change."""
    return load(source, tmp_path_factory.mktemp("cache"))


def test_what_is_prepared_is_not_prepared_again(source, made, monkeypatch):
    monkeypatch.setattr(writer, "write", None)
    assert load(source, made.folder.parent).fingerprint == made.fingerprint


def test_an_unchanged_input_is_not_hashed_again(source, made, monkeypatch):
    monkeypatch.setattr(input_hashes, "hash_file", None)
    load(source, made.folder.parent)


def test_the_same_text_elsewhere_is_the_same_corpus(made, tmp_path):
    elsewhere = write_corpus(tmp_path / "elsewhere")
    assert load(elsewhere, made.folder.parent).folder == made.folder


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
def test_other_options_are_another_corpus(source, made, fields):
    other = load(source, made.folder.parent, **fields)
    assert other.folder != made.folder
    assert other.fingerprint != made.fingerprint or "sentences" in fields


def test_changed_inputs_are_noticed_and_named(tmp_path, capsys):
    source = write_corpus(tmp_path / "text")
    old = load(source, tmp_path)
    (tmp_path / "text" / "003.txt").write_text(prose(99, 60))
    (tmp_path / "text" / "100.txt").write_text(prose(98, 10))
    (tmp_path / "text" / "004.txt").unlink()
    capsys.readouterr()
    new = load(source, tmp_path)
    told = capsys.readouterr().err
    assert new.fingerprint != old.fingerprint
    assert old.folder.exists()
    for words in ("003.txt changed", "100.txt is new", "004.txt is gone"):
        assert words in told


def test_text_that_changes_while_it_is_read_is_refused(tmp_path, monkeypatch):
    source = write_corpus(tmp_path / "text")

    def write_and_change(*args, write=writer.write):
        (tmp_path / "text" / "000.txt").write_text("Something else.\n")
        return write(*args)

    monkeypatch.setattr(writer, "write", write_and_change)
    with pytest.raises(UserError, match="changed while it was read"):
        load(source, tmp_path)
    assert not list(tmp_path.glob("*/manifest.json"))


@pytest.mark.parametrize(
    "point", ["after the vocabulary", "among the tokens", "before the manifest"]
)
def test_a_killed_run_is_continued_to_the_same_bytes(source, made, tmp_path, monkeypatch, point):
    killed = start(PREPARE, source, str(tmp_path), point)
    killed.communicate()
    assert killed.returncode == -signal.SIGKILL
    assert not list(tmp_path.glob("*/manifest.json"))
    finished = len(list(tmp_path.glob("*.partial/part-*.npz")))
    assert (finished >= 3) == (point != "after the vocabulary")

    encoded, joined = spy(monkeypatch, "encode"), spy(monkeypatch, "join")
    monkeypatch.setattr(writer, "PART", 3000)
    monkeypatch.setattr(tokenizers, "learn", None)
    continued = load(source, tmp_path)
    assert contents(continued.folder) == contents(made.folder)
    assert len(encoded) == len(joined[0][0]) - finished
    assert (not encoded) == (point == "before the manifest")
    assert not list(tmp_path.glob("*.partial"))


def test_two_at_once_make_one_corpus(source, made, tmp_path):
    two = [start(PREPARE, source, str(tmp_path), "never") for _ in range(2)]
    outputs = [process.communicate() for process in two]
    assert [process.returncode for process in two] == [0, 0], outputs
    assert {out.split()[1] for out, _ in outputs} == {made.fingerprint}
    assert sum("learning the vocabulary" in err for _, err in outputs) == 1


def test_a_full_disk_leaves_parts_for_the_next_run(source, made, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(writer.Array, "append", full)
        with pytest.raises(UserError, match="no space left"):
            load(source, tmp_path)
    assert not list(tmp_path.glob("*/manifest.json"))
    assert contents(load(source, tmp_path).folder) == contents(made.folder)


def test_errors_in_the_text_leave_no_corpus(tmp_path):
    source = write_corpus(tmp_path / "text")
    (tmp_path / "text" / "007.txt").write_bytes(b"fine\n\xff")
    with pytest.raises(UserError, match=r"007\.txt, line 2: .* offset 5"):
        load(source, tmp_path)
    assert not list(tmp_path.glob("*/manifest.json"))


def test_text_of_blanks_alone_is_refused(tmp_path):
    (tmp_path / "blank.txt").write_text(" \n\n \n")
    with pytest.raises(UserError, match="holds no text"):
        load(f"text:{tmp_path}/*.txt", tmp_path)


def test_a_misspelt_option_is_named(source, tmp_path):
    with pytest.raises(TypeError, match="documentz"):
        load(source, tmp_path, documentz="file")


def test_text_on_a_bucket_gives_the_corpus_of_local_text(source, made, tmp_path):
    files = fsspec.filesystem("memory")
    files.put(source.removeprefix("text:").split("*")[0], "/shelf/", recursive=True)
    found = load("text:memory://shelf/" + source.rpartition("/")[2], tmp_path)
    files.rm("/shelf", recursive=True)
    arrays = [name for name in contents(made.folder) if name != corpora.MANIFEST]
    assert {name: contents(found.folder)[name] for name in arrays} == {
        name: contents(made.folder)[name] for name in arrays
    }


def test_a_cache_that_cannot_be_made_is_refused(source, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"cache='.*/file/data': no such folder can be made: Not a"):
        load(source, tmp_path / "file" / "data")


def test_a_cache_that_is_an_address_is_refused(source, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="gs://bucket"):
        load(source, "gs://bucket/data")
    assert not list(tmp_path.iterdir())


def test_the_program_prints_what_it_made(source, made, tmp_path):
    recipe = tmp_path / "recipe.py"
    recipe.write_text(
        "from ml_collections import ConfigDict\n"
        f"def get_config(): return ConfigDict(dict(corpus=dict(source={source!r}, "
        f"cache={str(made.folder.parent)!r}, tokens={TOKENS!r})))\n"
    )
    command = [sys.executable, "-m", "pretrain.data.prepare", f"--config={recipe}"]
    ran = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True)
    for name in ("documents", "sentences", "words", "bytes", "tokens"):
        assert f"{name:<11}{made.manifest[name]:>15,}" in ran.stdout
    for words in ("vocabulary", str(made.folder)):
        assert words in ran.stdout
    wrong = subprocess.run(
        [*command, "--config.corpus.source=news"], cwd=REPOSITORY, capture_output=True, text=True
    )
    assert wrong.returncode == 1
    assert wrong.stderr.startswith("error: source='news'")


def test_preparing_does_not_import_jax():
    modules = "pretrain.data.prepare, pretrain.data.batches.lanes"
    script = f"import sys, {modules}; print('jax' in sys.modules)"
    assert start(script).communicate()[0].strip() == "False"


def memory_of_one_line(tmp_path: Path, mb: int, sentences: str) -> float:
    (tmp_path / "text").mkdir()
    with (tmp_path / "text" / "line.txt").open("w") as file:
        file.write("One line.\n\n")
        for block in range(mb):
            words = prose(block % 7, 900).replace("\n", " ")
            file.write(words * (1_000_000 // len(words)))
    process = start(MEASURE, f"text:{tmp_path}/text/*.txt", str(tmp_path), sentences)
    output, errors = process.communicate()
    assert process.returncode == 0, errors
    return float(output)


@pytest.mark.parametrize("sentences", ["split", "whole"])
def test_memory_does_not_follow_the_length_of_a_line(tmp_path, sentences):
    assert memory_of_one_line(tmp_path, 10, sentences) < 110


@pytest.mark.slow
@pytest.mark.parametrize("sentences", ["split", "whole"])
def test_a_line_of_200_mb_takes_no_more_memory(tmp_path, sentences):
    assert memory_of_one_line(tmp_path, 200, sentences) < 250
