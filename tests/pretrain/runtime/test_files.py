"""Files are whole or absent, and what is wrong with one is named."""

import errno
import hashlib
import os

import pytest

from pretrain.runtime import files
from pretrain.runtime.errors import UserError


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"file/run.*Not a directory"):
        files.check_writable(tmp_path / "file" / "run")


def test_check_writable_makes_the_folder_and_leaves_nothing_in_it(tmp_path):
    files.check_writable(tmp_path / "a" / "b")
    assert list((tmp_path / "a" / "b").iterdir()) == []


def test_json_comes_back_and_no_draft_stays(tmp_path):
    value = {"a": [1, 2.5, None], "ö": "ß", "deep": {"x": True}}
    files.write_json(tmp_path / "new" / "f.json", value)
    assert files.read_json(tmp_path / "new" / "f.json") == value
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["f.json"]


def test_a_value_that_is_not_json_leaves_the_old_file(tmp_path):
    files.write_json(tmp_path / "f.json", 1)
    with pytest.raises(TypeError):
        files.write_json(tmp_path / "f.json", {"x": object()})
    assert files.read_json(tmp_path / "f.json") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["f.json"]


def test_a_full_disk_leaves_the_old_file_and_no_draft(tmp_path, monkeypatch):
    def fail(fd):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    files.write_json(tmp_path / "f.json", 1)
    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="No space left"):
        files.write_json(tmp_path / "f.json", 2)
    assert files.read_json(tmp_path / "f.json") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["f.json"]


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b'{"a": 1,\n "b" 2}', r"f\.json is not JSON at line 2, column 6"),
        (b"", r"f\.json is not JSON at line 1"),
        (b'{"a": "\xff"}', r"f\.json is not UTF-8 at byte 7"),
        (b"[" * 200_000, r"f\.json is not ours: it is nested too deeply"),
        (b"9" * 5_000, r"f\.json is not ours: Exceeds the limit"),
    ],
)
def test_broken_json_is_named_with_its_place(tmp_path, content, complaint):
    (tmp_path / "f.json").write_bytes(content)
    with pytest.raises(UserError, match=complaint):
        files.read_json(tmp_path / "f.json")


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(UserError, match=r"no\.json: No such file"):
        files.read_json(tmp_path / "no.json")


def test_a_private_file_is_readable_by_its_owner_alone(tmp_path):
    for private, mode in ((True, 0o600), (False, 0o666 & ~umask())):
        files.write_json(tmp_path / "f.json", 1, private=private)
        assert (tmp_path / "f.json").stat().st_mode & 0o777 == mode


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
    assert files.unused_path(tmp_path / "f") == tmp_path / "f"
    (tmp_path / "f").write_text("")
    (tmp_path / "f-1").symlink_to("nowhere")
    assert files.unused_path(tmp_path / "f") == tmp_path / "f-2"
