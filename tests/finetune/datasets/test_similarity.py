"""Scored pairs are read in every format, which the file itself tells."""

import gzip

import pytest

from finetune import datasets
from pretrain.runtime.errors import UserError

PAIRS = [("A cat, asleep.", 'The "dog"', 4.5), ("One", "Two", 0.0)]
FILES = {
    "sts-test.csv": "\n".join(
        f"main-news\tMSRpar\t2012test\t000{i}\t{x[2]}\t{x[0]}\t{x[1]}" + "\tsource\tother" * i
        for i, x in enumerate(PAIRS)
    ),
    "dev.tsv": "index\tgenre\tsentence1\tsentence2\tscore\n"
    + "\n".join(f"{i}\tnews\t{x[0]}\t{x[1]}\t{x[2]}" for i, x in enumerate(PAIRS)),
    "SICK.txt": "pair_ID\tsentence_A\tsentence_B\tentailment_label\trelatedness_score\tset\r\n"
    + "\r\n".join(f"{i}\t{x[0]}\t{x[1]}\tNEUTRAL\t{x[2]}\tTEST" for i, x in enumerate(PAIRS)),
    "stsb-en-test.csv": '"A cat, asleep.","The ""dog""",4.5\nOne,Two,0\n',
    "plain.tsv": 'A cat, asleep.\tThe "dog"\t4.5\nOne\tTwo\t0.0\n',
    "plain.jsonl": '{"sentence1": "A cat, asleep.", "sentence2": "The \\"dog\\"", "score": 4.5}\n'
    '{"id": 2, "sentence1": "One", "sentence2": "Two", "score": 0}\n',
}
SCORED = "x\ty\n" + "\n".join(f"{x[0]}\t{x[1]}\tsource" for x in PAIRS) + "\nu\tv\n"


def read(path):
    found = datasets.read("similarity", str(path))
    return [(*x["texts"], x["label"]) for x in found.examples], found.notes


@pytest.mark.parametrize("name", FILES)
def test_a_file_tells_its_format(tmp_path, name):
    path = tmp_path / name
    path.write_text(FILES[name])
    assert read(path) == (PAIRS, [])
    packed = tmp_path / f"{name}.gz"
    packed.write_bytes(gzip.compress(FILES[name].encode()))
    assert read(packed) == (PAIRS, [])


@pytest.mark.parametrize("year", ["", "2016"])
def test_scores_of_semeval_stand_in_a_file_beside(tmp_path, year):
    path = tmp_path / f"STS{year}.input.a-b.txt"
    path.write_text(SCORED)
    with pytest.raises(UserError, match=rf"STS{year}.gs.a-b.txt, and that is not there"):
        read(path)
    scores = tmp_path / f"STS{year}.gs.a-b.txt"
    scores.write_text("\n4.5\n0\n\n")
    notes = [f"left out: pairs that nobody scored: 2, the first at {path}, line 1"]
    assert read(path) == (PAIRS, notes)
    assert datasets.file_format("similarity").list_files(str(tmp_path)) == [str(path)]
    scores.write_text("\n4.5\nx\n\n")
    with pytest.raises(UserError, match=r"gs.a-b.txt, line 3: the label 'x' is not a number"):
        read(path)
    scores.write_text("1\n" * 5)
    with pytest.raises(UserError, match=r"5 scores of 4 pairs"):
        read(path)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.csv", "One,Two\n", r"a.csv, line 1: tells no format of scored pairs, 'One, Two': want"),
        ("a.csv", "One,Two,1\nOne,Two\n", r"a.csv, line 2: 2 columns, and there should be 3"),
        ("a.tsv", "One\tTwo\t1\n\tTwo\t1\n", r"a.tsv, line 2: column 0 is empty"),
        ("a.tsv", "One\tTwo\t1\nOne\tTwo\t?\n", r"a.tsv, line 2: the label '\?' is not a number"),
        ("a.jsonl", '{"text": "One"}\n', r"a.jsonl, line 1: tells no format"),
        ("a.jsonl", '{"text1": "A", "text2": "B", "score": 1}\n{}\n', r"line 2: has no 'text1'"),
        (
            "a.jsonl",
            '{"text1": "A", "text2": "B", "score": 1}\n3\n',
            r"line 2: should be an object",
        ),
        ("STS.input.a.txt", "One\n", r"a.txt, line 1: want two texts, parted by a tab"),
    ],
)
def test_what_is_malformed_is_named_by_file_and_line(tmp_path, name, text, message):
    (tmp_path / name).write_text(text)
    (tmp_path / "STS.gs.a.txt").write_text("1\n")
    with pytest.raises(UserError, match=message):
        read(tmp_path / name)


def test_a_folder_without_pairs_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"has no STS.input.\*.txt"):
        datasets.file_format("similarity").list_files(str(tmp_path))
