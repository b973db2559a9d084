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
            with pytest.raises(UsageError, match="name two files"):
                predict.parse_words(words)
        (tmp_path / "out").touch()
        with pytest.raises(UserError, match="is there already"):
            predict.parse_words(["in.tsv", str(tmp_path / "out")])
