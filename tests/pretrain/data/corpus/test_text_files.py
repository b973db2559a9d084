"""Text files arrive as bounded lines; what is wrong is named by file, line and byte."""

import gzip
from pathlib import Path

import pytest
import zstandard

from pretrain.data.corpus import text_files
from pretrain.runtime.errors import UserError


def read(path: Path) -> str:
    return "".join(text_files.read_lines(path))


def test_packed_files_read_as_the_plain_one(tmp_path):
    words = "One line.\nAnother, longer líne.\n" * 9000
    plain, gz, zst = (tmp_path / f"a.txt{packing}" for packing in ("", ".gz", ".zst"))
    plain.write_text(words)
    gz.write_bytes(gzip.compress(words.encode()))
    two_frames = words[:70_000], words[70_000:]
    zst.write_bytes(b"".join(zstandard.compress(frame.encode()) for frame in two_frames))
    assert read(plain) == read(gz) == read(zst) == words


@pytest.mark.parametrize(
    ("content", "line", "message"),
    [
        ("\ufeffé\n".encode() + b"ab\0c", 2, "offset 8 is NUL"),
        (b"fine\nfine\nb\xffd", 3, "offset 11 is not UTF-8: write the file anew, by iconv"),
        (b"x" * 70_000 + b"\n\xc3", 2, "offset 70001 is not UTF-8"),
        (b"a\n" * 40_000 + b"\xe2\x28\xa1", 40_001, "offset 80000 is not UTF-8"),
        ("é\n".encode() * 40_000 + b"\xf0\x9f\x98", 40_001, "offset 120000 is not UTF-8"),
    ],
)
def test_bytes_that_are_no_text_are_named_by_place(tmp_path, content, line, message):
    path = tmp_path / "bad.txt"
    path.write_bytes(content)
    with pytest.raises(UserError, match=rf"bad\.txt, line {line}: the byte at {message}"):
        read(path)


def test_empty_and_missing_files_are_named(tmp_path):
    (tmp_path / "none.txt").touch()
    with pytest.raises(UserError, match=r"none\.txt: empty file"):
        read(tmp_path / "none.txt")
    with pytest.raises(UserError, match=r"gone\.txt: cannot be read"):
        read(tmp_path / "gone.txt")


@pytest.mark.parametrize("packing", [".gz", ".zst"])
def test_files_cut_short_are_named(tmp_path, packing):
    pack = gzip.compress if packing == ".gz" else zstandard.compress
    path = tmp_path / f"cut.txt{packing}"
    whole = pack(bytes(range(1, 100)) * 50)
    path.write_bytes(whole[:-9])
    with pytest.raises(UserError, match=r"cut\.txt.*cut short"):
        list(text_files.read_blocks(path))
    path.write_bytes(b"no such packing")
    with pytest.raises(UserError, match=r"cut\.txt.*broken"):
        list(text_files.read_blocks(path))


def test_an_endless_line_comes_in_parts_that_end_between_words():
    line = "word " * 40_000
    parts = list(text_files.split_lines([line[:100_001], line[100_001:]]))
    assert "".join(parts) == line + "\n"
    assert max(map(len, parts)) <= text_files.LONGEST
    assert all(part.endswith(("word ", "\n")) for part in parts)
