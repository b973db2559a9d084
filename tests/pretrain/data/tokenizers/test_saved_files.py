"""A saved tokenizer that is damaged is named, never opened as another one, of any kind."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from pretrain.data.tokenizers import registry, saved_files
from pretrain.runtime.errors import UserError
from tests.support.corpora import flip_bit
from tests.support.tokenizer_data import KINDS, TEXTS

RECORD = "sha256.json"
TEXT = [*TEXTS[:3], "1990, Öl ☃"]


@pytest.fixture(scope="module")
def whole(learned, tmp_path_factory) -> Path:
    """A folder of each kind, saved, that nobody may change."""
    folder = tmp_path_factory.mktemp("saved")
    for kind, tokenizer in learned.items():
        tokenizer.save(folder / kind)
    return folder


@pytest.fixture
def saved(whole, tmp_path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "saved"))


def ids(tokenizer) -> list[list[int]]:
    return [text.tolist() for text in tokenizer.encode(TEXT)]


@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_file_of_a_tokenizer_is_named(saved, kind):
    for path in sorted((saved / kind).iterdir()):
        whole = path.read_bytes()
        for content in (whole[:-3], whole.replace(b"e", b"f", 1), b""):
            path.write_bytes(content)
            with pytest.raises(UserError, match=rf"{kind}/{path.name} is damaged") as error:
                registry.load(saved / kind)
            assert "\n" not in str(error.value)
            path.write_bytes(whole)
    registry.load(saved / kind)


@pytest.mark.parametrize("kind", KINDS)
def test_a_tokenizer_without_a_record_has_the_same_digest(saved, kind):
    before = registry.load(saved / kind)
    digest = saved_files.hash_saved(saved / kind)
    (saved / kind / RECORD).unlink()
    again = registry.load(saved / kind)
    assert ids(again) == ids(before)
    np.testing.assert_array_equal(again.word_start_V, before.word_start_V)
    assert saved_files.hash_saved(saved / kind) == digest


def test_saving_again_mends_a_tokenizer(saved):
    tokenizer = registry.load(saved / "bpe")
    for name in ("merges.txt", RECORD):
        (saved / "bpe" / name).write_bytes(b"")
        tokenizer.save(saved / "bpe")
        assert registry.load(saved / "bpe") == tokenizer


def test_what_is_saved_already_is_not_written_again(saved):
    times = {path: path.stat().st_mtime_ns for path in (saved / "bpe").iterdir()}
    inodes = {path: path.stat().st_ino for path in times}
    registry.load(saved / "bpe").save(saved / "bpe")
    assert {path: path.stat().st_mtime_ns for path in (saved / "bpe").iterdir()} == times
    assert {path: path.stat().st_ino for path in times} == inodes


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_of_a_library_is_one_line(saved, kind):
    (saved / kind / RECORD).unlink()
    for path in sorted((saved / kind).iterdir()):
        whole = path.read_bytes()
        path.write_bytes(whole[: len(whole) // 3] + b"\xff\0" + whole[len(whole) // 2 :])
        with pytest.raises(UserError) as error:
            registry.load(saved / kind)
        assert "\n" not in str(error.value)
        path.write_bytes(whole)


@pytest.mark.parametrize("name", ["../../x", "learning", "files", "a.b", "", "saved.x"])
def test_a_name_that_is_no_tokenizer_is_refused(name):
    with pytest.raises(UserError, match=r"there is no .* with a Tokenizer"):
        registry.settings(name)


def test_a_tokenizer_that_is_a_link_is_replaced(learned, tmp_path):
    tokenizer, mine = learned["sentencepiece"], tmp_path / "mine"
    tokenizer.save(mine)
    flip_bit(mine / "spiece.model", 4001)
    before = (mine / "spiece.model").read_bytes()
    run = tmp_path / "run" / "tokenizer"
    run.mkdir(parents=True)
    for name in ("spiece.model", "tokenizer.json", "sha256.json"):
        (run / name).symlink_to(mine / name)
    tokenizer.save(run)
    whole = tmp_path / "linked"
    whole.symlink_to(mine)
    tokenizer.save(whole)
    for folder in (run, whole):
        assert registry.load(folder) == tokenizer
        assert not any(path.is_symlink() for path in (folder, *folder.iterdir()))
    assert (mine / "spiece.model").read_bytes() == before
