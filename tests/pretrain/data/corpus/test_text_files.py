"""Text files arrive as bounded lines; what is wrong is named by file, line and byte."""

import gzip
import io
import random
import types
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


def test_a_packed_text_may_be_cut_within_a_character(tmp_path):
    # It packs badly, so that many packed bytes unpack to nothing yet; a block of 2 ** 17 bytes
    # ends within one of its characters of three.
    words = "".join(map(chr, random.Random(0).choices(range(0x4E00, 0x9FFF), k=100_000))) + "\n"
    path = tmp_path / "a.txt.zst"
    path.write_bytes(zstandard.compress(words.encode()))
    assert read(path) == words


def test_lines_that_are_wanted_whole_come_in_one_piece(tmp_path):
    path, long = tmp_path / "a.txt", "word " * 10_000
    path.write_text(f"\ufeffone\r\n\n{long}\nlast", newline="")
    assert list(text_files.read_whole_lines(path)) == ["one", "", long, "last"]
    path.write_text(f"one\n{long * 22}")
    with pytest.raises(UserError, match=r"a\.txt, line 2: longer than 1,048,576 characters"):
        list(text_files.read_whole_lines(path))


def test_standard_input_is_read_as_a_file_is(monkeypatch):
    def lines(content):
        monkeypatch.setattr("sys.stdin", types.SimpleNamespace(buffer=io.BytesIO(content)))
        return list(text_files.read_input_lines())

    assert lines("\ufeffone\ntwó".encode()) == ["one", "twó"]
    with pytest.raises(
        UserError, match="standard input, line 2: the byte at offset 5 is not UTF-8"
    ):
        lines(b"one\nd\xe9\n")


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
