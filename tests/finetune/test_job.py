"""A job is built of a recipe that fits its data, or says what is wrong."""

import json

import numpy as np
import pytest
from ml_collections import ConfigDict

from finetune import job as jobs
from pretrain.runtime import run_config
from pretrain.runtime.errors import UserError
from tests.support import tiny_jobs
from tests.support.tiny_jobs import ignore, table
from tests.support.tiny_models import run

pytest_plugins = ["tests.support.tiny_runs"]
__all__ = ["run", "table"]

WRONG = {
    "model: .* was pretrained with another: D=32 instead of 16": {"model.D": 32},
    "batches.L=64: this model reads rows of at most 32": {"batches.L": 64},
    "batches.L=2: a row has 2 marks": {"batches.L": 2},
    "no training examples are named": {"data.train": ""},
    "task.metrics|metric 'bleu'|'bleu'": {"task.metrics": ("bleu",)},
    "task.name='sing'": {"task.name": "sing"},
    "positiv": {"task.positiv": "x"},
    "task.loss.weights: 3 weights for 2 classes": {"task.loss": {"weights": (1.0, 1.0, 1.0)}},
    "task.language_model is of": {"task.language_model": 0.5},
}


@pytest.mark.parametrize("reason", WRONG)
def test_what_cannot_be_is_refused_at_the_door(run, table, reason):
    recipe = tiny_jobs.recipe(table, run("mlm").workdir)
    recipe.model = ConfigDict(
        {k.split(".")[1]: v for k, v in WRONG[reason].items() if k.startswith("model.")}
    )
    for name, value in WRONG[reason].items():
        section, field = name.split(".")
        with recipe[section].unlocked():
            recipe[section][field] = value
    with pytest.raises(UserError, match=reason):
        jobs.build_job(recipe, ignore)


@pytest.fixture
def with_splits(run, table, tmp_path):
    """A recipe whose held-out splits have these labels."""

    def make(**splits: str) -> ConfigDict:
        for split, labels in splits.items():
            text = "".join(f"ab cd\t{label}\t0\n" for label in labels.split())
            (tmp_path / f"{split}.tsv").write_text(text)
        paths = {f"data.{split}": str(tmp_path / f"{split}.tsv") for split in splits}
        return tiny_jobs.recipe(table, run("mlm").workdir, **paths)

    return make


def test_a_label_that_training_has_not_seen_is_named_once(with_splits, tmp_path):
    splits, said = dict(dev="yes perhaps perhaps", test="no perhaps never"), []
    job = jobs.build_job(with_splits(**splits), said.append)
    assert [job.evals[split].size for split in splits] == [3, 3]
    notes = "\n".join(said)
    assert notes.count("'perhaps' (") == notes.count("'never' (") == 1
    assert f"not in the loss: 'perhaps' ({tmp_path / 'dev.tsv'}, line 2)" in notes
    outputs = {"logits_BC": np.array([[0.0, 1.0]] * 3)}
    assert job.score("dev", outputs)["accuracy"] == pytest.approx(1 / 3)


def test_how_many_examples_there_were_is_saved_with_the_job(with_splits, tmp_path):
    job = jobs.build_job(with_splits(dev="yes no yes", test="no"), ignore)
    jobs.save_job(job, tmp_path)
    counts = json.loads((tmp_path / run_config.DATA).read_text())["examples"]
    assert counts == {"train": job.train.size, "dev": 3, "test": 1}


def test_a_label_beyond_those_listed_by_hand_is_refused(with_splits):
    recipe = with_splits(dev="yes perhaps")
    recipe.task.labels = ("no", "yes")
    with pytest.raises(UserError, match=r"dev\.tsv, line 2: label 'perhaps' is none of no, yes"):
        jobs.build_job(recipe, ignore)
    recipe.task.closed = False
    jobs.build_job(recipe, ignore)


def test_a_split_of_unseen_labels_alone_is_refused(with_splits):
    with pytest.raises(UserError, match=r"data\.dev: training shows none of its labels: .*'0' \("):
        jobs.build_job(with_splits(dev="0 1"), ignore)


def test_every_seed_has_a_job_for_every_fold_that_is_not_chosen():
    config = ConfigDict(dict(seed=5, num_seeds=2, data=dict(train="a", folds=3, fold=None)))
    recipes = jobs.list_recipes(config)
    assert list(recipes) == [f"seed-{s}/fold-{f}" for s in range(2) for f in range(3)]
    drawn = {(x.seed, x.data.fold) for x in recipes.values()}
    assert drawn == {(s, f) for s in (5, 6) for f in range(3)}
    config.data.fold = 1
    assert list(jobs.list_recipes(config)) == ["seed-0", "seed-1"]
