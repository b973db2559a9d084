"""The recipe of a run beside its weights, without secrets."""

import pytest

from pretrain.runtime import run_config
from pretrain.runtime.errors import UserError


def test_the_recipe_is_kept_beside_the_weights(tmp_path):
    run_config.write_config(tmp_path, {"model": {"D": 8}, "evals": ["a"]})
    assert run_config.read_config(tmp_path) == {"model": {"D": 8}, "evals": ["a"]}


def test_credentials_of_a_recipe_are_neither_written_nor_compared(tmp_path):
    recipe = {"corpus": {"source": "text:s3://key:secret@b/*"}, "more": ["s3://:secret@b/x"]}
    run_config.write_config(tmp_path, recipe)
    assert "secret" not in (tmp_path / "config.json").read_text()
    kept = run_config.read_config(tmp_path)
    assert kept["corpus"]["source"] == "text:s3://b/*"
    assert run_config.diff_configs(kept, recipe) == run_config.diff_configs(recipe, kept) == []
    elsewhere = {**recipe, "corpus": {"source": "text:s3://key:secret@c/*"}}
    assert run_config.diff_configs(recipe, elsewhere) == [
        "corpus.source: text:s3://b/* -> text:s3://c/*"
    ]


def test_differences_are_named_by_their_dotted_path():
    saved = {"optim": {"lr": 0.0004, "b2": 0.99}, "seed": 1, "data": {"shape": [1, 2]}}
    present = {"optim": {"lr": 0.001, "b2": 0.99}, "data": {"shape": (1, 2), "mix": {"a": 0.5}}}
    assert run_config.diff_configs(saved, present) == [
        "optim.lr: 0.0004 -> 0.001",
        "seed: 1 -> (absent)",
        "data.mix.a: (absent) -> 0.5",
    ]
    assert run_config.diff_configs(present, present) == []


def test_a_run_of_before_there_was_a_key_has_what_it_stands_for():
    assert run_config.diff_configs({}, {"init": ""}) == []
    assert run_config.diff_configs({}, {"init": "runs/a"}) == ["init: (absent) -> runs/a"]
    assert run_config.diff_configs({"init": ""}, {}) == ["init:  -> (absent)"]
    assert run_config.diff_configs({}, {"corpus": {"tokens": {"extend": 0}}}) == []
    assert run_config.diff_configs({}, {"init_tokens": "run"}) == []
    assert run_config.diff_configs({}, {"corpus": {"text_key": "text", "tfds_dir": ""}}) == []
    [line] = run_config.diff_configs({}, {"corpus": {"tokens": {"extend": 500}}})
    assert line == "corpus.tokens.extend: (absent) -> 500"
    saved, present = {"train": {"patience": 10}}, {"train": {"max_skips": 10, "stop_after": 0}}
    assert run_config.diff_configs(saved, present) == []


def test_a_recipe_with_credentials_is_readable_by_its_owner_alone(tmp_path):
    path = tmp_path / "config.json"
    path.touch()
    usual = path.stat().st_mode
    for source, mode in (("text:s3://key:secret@b/a", 0o600), ("text:a/*.txt", usual & 0o777)):
        run_config.write_config(tmp_path, {"corpus": {"source": source, "x": (1, 2)}})
        assert path.stat().st_mode & 0o777 == mode


def test_a_config_that_is_no_recipe_is_refused(tmp_path):
    (tmp_path / "config.json").write_text("[]")
    with pytest.raises(UserError, match=r"config\.json holds no recipe"):
        run_config.read_config(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    with pytest.raises(UserError, match=r"holds published weights; python -m pretrain\.convert"):
        run_config.read_config(tmp_path)


def test_a_folder_of_jobs_is_answered_with_one_of_them(tmp_path):
    with pytest.raises(UserError, match=r"holds no run: it has no config.json$"):
        run_config.require_run(tmp_path)
    (tmp_path / "seed-0" / "fold-1").mkdir(parents=True)
    (tmp_path / "seed-0" / "fold-1" / "config.json").write_text("{}")
    with pytest.raises(UserError, match=r"several jobs: name one, as .*/seed-0/fold-1$"):
        run_config.require_run(tmp_path)
    run_config.require_run(tmp_path / "seed-0" / "fold-1")
