"""The command reads what the recipe names, and writes where nothing is."""

import pytest
from absl import flags
from absl.testing import flagsaver

from configs.finetune import common
from finetune import predict
from pretrain.runtime.errors import UsageError, UserError


def test_the_input_is_read_as_the_recipe_s_files_are_unless_it_is_said_otherwise(tmp_path):
    config = common.base()
    config.data = dict(
        format="glue",
        task="rte",
        folds=3,
        dev_share=0.1,  # of the recipe's own files, and not of the input
        train=dict(path="g", split="train"),
        test=dict(path="g", split="test"),
        dev="",
    )
    shared = {"task": "rte"}
    assert predict.resolve_format(config.data, "", "", "{}") == ("glue", shared)
    assert predict.resolve_format(config.data, "", "test", "{}") == (
        "glue",
        shared | {"split": "test"},
    )
    given = predict.resolve_format(config.data, "glue", "test", '{"split": "dev"}')
    assert given == ("glue", shared | {"split": "dev"})
    assert predict.resolve_format(config.data, "table", "", '{"label": ""}') == (
        "table",
        {"label": "", "needs_label": False},
    )
    with pytest.raises(UserError, match="--split=dev: the recipe has train, test"):
        predict.resolve_format(config.data, "", "dev", "{}")
    for wrong in ("{", "[1]"):
        with pytest.raises(UserError, match="--fields="):
            predict.resolve_format(config.data, "", "", wrong)


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
