"""Files are whole or absent."""

import errno
import hashlib
import os

import pytest

from pretrain.runtime import files


def test_a_full_disk_leaves_the_old_file_and_no_draft(tmp_path, monkeypatch):
    def fail(fd):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    files.write_file(tmp_path / "f", b"1")
    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="No space left"):
        files.write_file(tmp_path / "f", b"2")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"f": b"1"}


def test_a_private_file_is_readable_by_its_owner_alone(tmp_path):
    for private, mode in ((True, 0o600), (False, 0o666 & ~umask())):
        files.write_file(tmp_path / "f", b"1", private=private)
        assert (tmp_path / "f").stat().st_mode & 0o777 == mode


def umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_a_link_is_replaced_and_its_target_stays(tmp_path):
    (tmp_path / "precious").write_text("kept")
    (tmp_path / "f").symlink_to("precious")
    files.write_file(tmp_path / "f", b"new")
    assert (tmp_path / "f").read_bytes() == b"new"
    assert not (tmp_path / "f").is_symlink()
    assert (tmp_path / "precious").read_text() == "kept"


def test_an_interrupted_block_leaves_the_old_file_alone(tmp_path):
    (tmp_path / "f").write_text("old")
    with pytest.raises(KeyboardInterrupt), files.replace_file(tmp_path / "f") as draft:
        raise KeyboardInterrupt(draft.write_text("half"))
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"f": "old"}


def test_the_hash_is_the_sha256_of_the_content(tmp_path):
    (tmp_path / "f").write_bytes(b"abc" * 100_000)
    assert files.hash_file(tmp_path / "f") == hashlib.sha256(b"abc" * 100_000).hexdigest()


def test_an_unused_path_is_numbered_past_files_and_dangling_links(tmp_path):
    assert files.find_unused_path(tmp_path / "f") == tmp_path / "f"
    (tmp_path / "f").write_text("")
    (tmp_path / "f-1").symlink_to("nowhere")
    assert files.find_unused_path(tmp_path / "f") == tmp_path / "f-2"


def test_what_is_beside_a_folder_has_its_whole_name(tmp_path):
    beside = files.beside(tmp_path / "wiki-20231101.en-1f", ".partial")
    assert beside == tmp_path / "wiki-20231101.en-1f.partial"
