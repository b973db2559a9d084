"""The command reads what the recipe names, and writes where nothing is."""

import pytest
from absl import flags
from absl.testing import flagsaver

from finetune import predict
from pretrain.runtime.errors import UsageError, UserError


@pytest.mark.parametrize(
    ("words", "texts", "files"),
    [
        (["in.tsv", "out.jsonl"], [], ("in.tsv", "out.jsonl")),
        (["in.tsv"], [], ("in.tsv", "-")),
        (["-"], [], ("-", "-")),
        ([], ["a film"], ("", "-")),
        (["out.jsonl"], ["a film"], ("", "out.jsonl")),
    ],
)
def test_files_may_be_standard_streams(words, texts, files):
    with flagsaver.flagsaver(text=texts):
        flags.FLAGS.mark_as_parsed()
        assert predict.parse_words(words) == files


def test_too_many_words_or_none_are_refused(tmp_path):
    with flagsaver.flagsaver(text=[]):
        flags.FLAGS.mark_as_parsed()
        for words in ([], ["a", "b", "c"]):
            with pytest.raises(UsageError, match="name the file to predict, and"):
                predict.parse_words(words)
        (tmp_path / "out").touch()
        with pytest.raises(UserError, match="is there already"):
            predict.parse_words(["in.tsv", str(tmp_path / "out")])


def test_each_run_is_averaged_once(tmp_path):
    forward, backward = (str(tmp_path / name) for name in ("forward", "backward"))
    with flagsaver.flagsaver(workdir=forward, **{"with": [backward]}):
        assert predict.list_folders() == [tmp_path / "forward", tmp_path / "backward"]
    again = f"{backward}/../forward"
    with (
        flagsaver.flagsaver(workdir=forward, **{"with": [backward, again]}),
        pytest.raises(UsageError, match=f"--with={again}: that run is averaged already"),
    ):
        predict.list_folders()


@pytest.mark.parametrize(
    ("source", "fields", "plain"),
    [
        ("-", {}, True),
        ("", {}, True),
        ("a.txt", {}, True),
        ("a.txt", {"kind": "tsv"}, False),
        ("a.csv", {}, False),
    ],
)
def test_a_text_file_is_read_as_standard_input_is(source, fields, plain):
    assert predict.is_plain(source, "table", fields) == plain


def test_lines_of_a_missing_text_file_are_refused_in_a_line(tmp_path):
    with pytest.raises(UserError, match=r"no\.txt: cannot be read: No such file"):
        list(predict.read_lines(str(tmp_path / "no.txt")))
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9\n")
    with pytest.raises(UserError, match=r"latin\.txt.* is not UTF-8"):
        list(predict.read_lines(str(tmp_path / "latin.txt")))
