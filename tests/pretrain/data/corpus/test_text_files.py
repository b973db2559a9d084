"""Text files arrive as bounded lines; what is wrong is named by file, line and byte."""

import gzip
from pathlib import Path

import pytest
import zstandard

from pretrain.data.corpus import text_files
from pretrain.runtime.errors import UserError


def read(path: Path) -> str:
    return "".join(text_files.read(path))


def test_packed_files_read_as_the_plain_one(tmp_path):
    words = "One line.\nAnother, longer líne.\n" * 9000
    plain, gz, zst = (tmp_path / f"a.txt{packing}" for packing in ("", ".gz", ".zst"))
    plain.write_text(words)
    gz.write_bytes(gzip.compress(words.encode()))
    two_frames = words[:70_000], words[70_000:]
    zst.write_bytes(b"".join(zstandard.compress(frame.encode()) for frame in two_frames))
    assert read(plain) == read(gz) == read(zst) == words


@pytest.mark.parametrize(
    ("content", "line", "offset"),
    [
        (b"fine\nfine\nb\xffd", 3, 11),
        (b"x" * 70_000 + b"\n\xc3", 2, 70_001),
        (b"a\n" * 40_000 + b"\xe2\x28\xa1", 40_001, 80_000),
        ("é\n".encode() * 40_000 + b"\xf0\x9f\x98", 40_001, 120_000),
    ],
)
def test_bad_utf8_is_named_by_file_line_and_byte(tmp_path, content, line, offset):
    path = tmp_path / "bad.txt"
    path.write_bytes(content)
    with pytest.raises(UserError, match=rf"bad\.txt, line {line}: .* offset {offset} .*UTF-8"):
        read(path)


def test_nul_bytes_are_named_by_place(tmp_path):
    path = tmp_path / "binary.txt"
    path.write_bytes("\ufeffé\n".encode() + b"ab\0c")
    with pytest.raises(UserError, match=r"binary\.txt, line 2: .* offset 8 is NUL"):
        read(path)


def test_empty_files_are_named(tmp_path):
    (tmp_path / "none.txt").touch()
    with pytest.raises(UserError, match=r"none\.txt: empty file"):
        read(tmp_path / "none.txt")


@pytest.mark.parametrize("packing", [".gz", ".zst"])
def test_files_cut_short_are_named(tmp_path, packing):
    pack = gzip.compress if packing == ".gz" else zstandard.compress
    path = tmp_path / f"cut.txt{packing}"
    whole = pack(bytes(range(1, 100)) * 50)
    path.write_bytes(whole[:-9])
    with pytest.raises(UserError, match=r"cut\.txt.*cut short"):
        list(text_files.blocks(path))
    path.write_bytes(b"no such packing")
    with pytest.raises(UserError, match=r"cut\.txt.*broken"):
        list(text_files.blocks(path))


def test_an_endless_line_comes_in_parts_that_end_between_words():
    line = "word " * 40_000
    parts = list(text_files.lines([line[:100_001], line[100_001:]]))
    assert "".join(parts) == line + "\n"
    assert max(map(len, parts)) <= text_files.LONGEST
    assert all(part.endswith(("word ", "\n")) for part in parts)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(UserError, match=r"gone\.txt: cannot be read"):
        read(tmp_path / "gone.txt")
