"""Damage to what was prepared is named or mended, whatever file it is in."""

import hashlib
import json
import os
import random
import re
from pathlib import Path

import fsspec
import numpy as np
import pytest

from pretrain import main
from pretrain.data import prepare
from pretrain.data.corpus import digests, prepared_corpus, writer
from pretrain.runtime.errors import UserError
from pretrain.runtime.job_options import JobOptions
from tests.support.corpora import flip_bit, hash_arrays, load

pytest_plugins = ["tests.support.tiny_runs"]

DAMAGED = r"is damaged: .*; remove this folder and the next run makes it again"


@pytest.fixture
def large(monkeypatch):
    """Small files are treated as large ones are."""
    monkeypatch.setattr(digests, "LARGE", 1)
    monkeypatch.setattr(digests, "BLOCK", 64)


# --- arrays ----------------------------------------------------------------------------------


def test_a_flipped_bit_of_any_array_is_named_at_start(copy):
    for name in prepared_corpus.ARRAYS:
        path = copy / f"{name}.bin"
        flip_bit(path, 4 * path.stat().st_size)
        for _ in range(2):
            with pytest.raises(UserError, match=rf"{copy} {DAMAGED}") as error:
                prepared_corpus.open_corpus(copy, 0.1)
            assert f"{name}.bin is not what was written" in str(error.value)
        flip_bit(path, 4 * path.stat().st_size)
    prepared_corpus.open_corpus(copy, 0.1)


def test_a_large_array_is_read_whole_once_per_change(copy, large, monkeypatch):
    monkeypatch.setattr(digests, "DRAWN", 0)
    prepared_corpus.open_corpus(copy, 0.1)
    flip_bit(copy / "tokens.bin", 77)
    prepared_corpus.open_corpus(copy, 0.1)  # nothing was drawn
    with pytest.raises(UserError, match=r"tokens\.bin is not what was written"):
        prepared_corpus.open_corpus(copy, 0.1, verify=True)
    os.utime(copy / "tokens.bin")
    with pytest.raises(UserError, match=r"tokens\.bin is not what was written"):
        prepared_corpus.open_corpus(copy, 0.1)


def test_damage_is_named_once_its_block_is_drawn(copy, large, monkeypatch):
    monkeypatch.setattr(digests, "DRAWN", 1)
    prepared_corpus.open_corpus(copy, 0.1)
    flip_bit(copy / "words.bin", 3)
    assert (copy / "words.bin").stat().st_size > digests.BLOCK
    random.seed(0)

    def read_often():
        for _ in range(64):
            prepared_corpus.open_corpus(copy, 0.1)

    with pytest.raises(UserError, match=r"words\.bin is not what was written"):
        read_often()


def test_a_damaged_record_of_large_arrays_is_written_anew(copy, large, monkeypatch):
    monkeypatch.setattr(digests, "DRAWN", 0)
    prepared_corpus.open_corpus(copy, 0.1)
    record = copy.with_suffix(".verified")
    whole = record.read_bytes()
    for content in (b"", whole[:-40], whole.replace(b"0", b"1", 1), b"[]", b'{"tokens": 5}'):
        record.write_bytes(content)
        prepared_corpus.open_corpus(copy, 0.1)
        assert record.read_bytes() == whole


def test_a_token_beyond_the_vocabulary_is_named(copy):
    tokens = np.fromfile(copy / "tokens.bin", np.uint16)
    tokens[5] = 150
    tokens.tofile(copy / "tokens.bin")
    manifest = json.loads((copy / "manifest.json").read_text())
    array = hashlib.sha256((copy / "tokens.bin").read_bytes()).hexdigest()
    manifest["arrays"]["tokens"]["sha256"] = array
    rest = {name: manifest[name] for name in ("options", "inputs")}
    prepared_corpus.write_manifest(copy, rest, manifest["arrays"])
    with pytest.raises(UserError, match=r"tokens\.bin holds the id 150, but .* ends at 150"):
        prepared_corpus.open_corpus(copy, 0.1)


@pytest.mark.parametrize("is_asked", [False, True])
def test_a_run_is_refused_its_damaged_corpus(toy, tmp_path, large, monkeypatch, is_asked):
    """A large array of it, where nothing is drawn: only `--verify` can tell."""
    monkeypatch.setattr(digests, "DRAWN", 0)
    config = toy.config("clm", {"corpus.cache": str(tmp_path), "batches.B": 10_000})
    flip_bit(prepare.prepare(**config.corpus).folder / "tokens.bin", 1234)
    named = r"tokens\.bin is not what was written" if is_asked else "batch has 10000 rows"
    with pytest.raises(UserError, match=named):
        main.main(config, tmp_path / "run", JobOptions(verify=is_asked, joins=False))


# --- manifest, tokenizer ---------------------------------------------------------------------


def remove_digests(folder: Path) -> None:
    """Leaves a corpus as it was written before files knew their own digest."""
    manifest = json.loads((folder / "manifest.json").read_text())
    del manifest["seal"]
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=1))
    (folder / "tokenizer" / "sha256.json").unlink()


def test_a_corpus_without_digests_of_its_files_opens(source, cache, copy, corpus, monkeypatch):
    remove_digests(copy)
    monkeypatch.setattr(writer, "write_parts", None)
    assert load(source, cache).fingerprint == corpus.fingerprint


@pytest.mark.parametrize("is_old", [False, True])
def test_a_damaged_manifest_is_named(copy, is_old):
    if is_old:
        remove_digests(copy)
    path = copy / "manifest.json"
    whole = path.read_bytes()
    for old, new in [
        (b'"sha256"', b'"sha257"'),
        (b'"uint16"', b'"uint06"'),
        (b'"fingerprint": "', b'"fingerprint": "0'),
        (b'"documents": 12', b'"documents": 13'),
        (b'"arrays"', b'"brrays"'),
        (b"{", b"["),
        (b"12", b"1\xff"),
        (whole, b""),
    ]:
        path.write_bytes(whole.replace(old, new, 1))
        assert path.read_bytes() != whole
        with pytest.raises(UserError, match=DAMAGED):
            prepared_corpus.open_corpus(copy, 0.1)


def test_the_broken_manifest_of_another_corpus_is_passed_over(source, cache, copy):
    (copy / "manifest.json").write_text('{"options"')
    assert load(source, cache, sentences="line").folder != copy


def test_a_damaged_tokenizer_of_a_corpus_is_named(copy):
    for is_old in (False, True):
        if is_old:
            remove_digests(copy)
        flip_bit(copy / "tokenizer" / "spiece.model", 4001)
        named = "a file in tokenizer/" if is_old else "tokenizer/spiece.model"
        with pytest.raises(UserError, match=rf"{named} is not what was written; remove"):
            prepared_corpus.open_corpus(copy, 0.1)
        flip_bit(copy / "tokenizer" / "spiece.model", 4001)


# --- what is only there to save work ---------------------------------------------------------


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"/a": 5}', b"\xff", None])
def test_damaged_hashes_are_computed_again(source, cache, corpus, capsys, content, monkeypatch):
    record = cache / "hashes.json"
    whole = record.read_bytes()
    record.write_bytes(whole.replace(b"0", b"1", 1) if content is None else content)
    monkeypatch.setattr(writer, "write_parts", None)
    assert load(source, cache).fingerprint == corpus.fingerprint
    assert "hashes.json is damaged: the text is hashed again" in capsys.readouterr().err
    assert json.loads(record.read_text()) == json.loads(whole)


@pytest.fixture
def unfinished(source, tmp_path, monkeypatch):
    """A cache in which a corpus of small parts was begun."""
    monkeypatch.setattr(writer, "PART", 3000)
    with monkeypatch.context() as patch:
        patch.setattr(writer, "join_parts", None)
        with pytest.raises(TypeError):
            load(source, tmp_path)
    return tmp_path


def test_damaged_parts_and_a_damaged_vocabulary_are_written_again(
    source, corpus, unfinished, capsys
):
    empty, cut, flipped, *whole = sorted(unfinished.glob("*.partial/part-*.npz"))
    assert whole
    empty.write_bytes(b"")
    os.truncate(cut, cut.stat().st_size // 2)
    flip_bit(flipped, 8 * 200)
    flip_bit(next(unfinished.glob("*.partial/tokenizer/spiece.model")), 4001)
    capsys.readouterr()
    assert hash_arrays(load(source, unfinished).folder) == hash_arrays(corpus.folder)
    message = capsys.readouterr().err
    assert "tokenizer is damaged: it is made again" in message
    for path in (empty, cut, flipped):
        assert re.search(rf"{path.name} is damaged .*: it is made again", message)


def test_what_a_kill_after_the_renaming_left_is_removed(source, cache, copy):
    left = copy.with_suffix(".partial")
    left.mkdir()
    (left / "part-000000.npz").write_bytes(b"much")
    load(source, cache)
    assert not left.exists()


# --- links and secrets -----------------------------------------------------------------------


def test_links_to_one_file_make_another_corpus_than_copies_did(source, cache, copy):
    folder = Path(source[5:]).parent
    elsewhere = cache / "text"
    elsewhere.mkdir()
    for path in folder.glob("*.txt"):
        (elsewhere / path.name).symlink_to(path)
    assert load(f"text:{elsewhere}/*.txt", cache).folder == copy
    (elsewhere / "again.txt").symlink_to(elsewhere / "000.txt")
    once = load(f"text:{elsewhere}/*.txt", cache)
    assert once.folder != copy
    assert hash_arrays(once.folder) == hash_arrays(copy)


def test_secrets_of_an_address_are_not_written_down(source, corpus, tmp_path, capsys):
    files, loaded = fsspec.filesystem("memory"), []
    names = ("me:pa55wd@shelf", "you:w0rd55@shelf")
    for name in names:
        files.put(source.removeprefix("text:").split("*")[0], f"/{name}/", recursive=True)
        loaded.append(load(f"text:memory://{name}/*.txt", tmp_path))
        files.rm(f"/{name}", recursive=True)
    written = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert b"memory://shelf/000.txt" in written
    for secret in (b"pa55wd", b"w0rd55"):
        assert secret not in written
        assert secret.decode() not in capsys.readouterr().err
    assert loaded[0].folder == loaded[1].folder
    assert loaded[0].fingerprint == corpus.fingerprint


def test_secrets_of_an_address_are_not_in_errors(tmp_path):
    for pattern in ("memory://me:secret@none/*.txt", "nowhere://me:secret@bucket/*.txt"):
        with pytest.raises(UserError, match="text:") as error:
            load(f"text:{pattern}", tmp_path)
        assert "secret" not in str(error.value)
    path = fsspec.filesystem("memory")
    for name in ("a", "b"):  # one to train on, one to hold out
        path.pipe(f"/me:secret@shelf/{name}.txt", b"\xff")
    with pytest.raises(UserError, match="not UTF-8") as error:
        load("text:memory://me:secret@shelf/*.txt", tmp_path)
    path.rm("/me:secret@shelf", recursive=True)
    assert "secret" not in str(error.value)
