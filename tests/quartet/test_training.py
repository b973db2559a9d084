"""Recipes are found and changed from Python, and trained in a process that has read no flags."""

import json
import os

import pytest

import quartet
from pretrain.runtime.errors import UsageError, UserError
from quartet.training import load_recipe, train
from tests.support import commands
from tests.support.tiny_runs import ROOT

pytest_plugins = ["tests.support.tiny_runs"]

CODE = """
import json, sys
import numpy as np
import quartet

changes = {"corpus.source": f"text:{sys.argv[1]}/a.txt", "corpus.cache": f"{sys.argv[1]}/data"}
config = quartet.load_recipe("tests/support/tiny_runs.py:mlm", changes)
run = quartet.train(config, f"{sys.argv[1]}/run")
rows = [("ab cd", "no"), ("ef gh", "yes")] * 8
lines = ["text,label", *map(",".join, rows)]
open(f"{sys.argv[1]}/rows.csv", "w").write("\\n".join(lines))
table = {"init": f"{sys.argv[1]}/run", "data.train": f"{sys.argv[1]}/rows.csv", "batches.L": 24,
         "batches.B": 8, "epochs": 1.0, "data.dev_share": 0.25}
tuned = quartet.train("finetune/table", f"{sys.argv[1]}/tuned", table)
mask = run.fill("the [MASK] of war", top=3)
print(json.dumps(dict(
    vectors=run.embed(["the state", "war"]).shape, tokens=run.embed("the state", pool="").ndim,
    alike=run.similarity("the state", "the state"), mask=[len(x) for x in mask],
    score=run.score("the state").total, label=tuned.predict("ab cd")["label"],
    again=quartet.load(f"{sys.argv[1]}/run").embed("war").shape)))
"""


def test_a_recipe_is_loaded_by_name_with_changes():
    config = load_recipe("bert:base", {"optim.lr": 3e-5})
    assert (config.model.N, config.optim.lr) == (12, 3e-5)
    assert load_recipe("bert", {"train.grad_accum": 2}).train.parts == 2
    with pytest.raises(UsageError, match=r"here it is called model\.N"):
        load_recipe("bert", {"model.depth": 2})


def test_a_recipe_of_no_job_is_refused_before_work(tmp_path):
    with pytest.raises(UserError, match=r"recipe of python -m pretrain\.gradients"):
        train(load_recipe("gradients"), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_recipe_that_is_given_takes_changes_and_stays_as_it_was(tmp_path):
    config = load_recipe("bert")
    with pytest.raises(UserError, match="decay='none'"):
        train(config, tmp_path / "run", {"optim.decay": "none"})
    assert config.optim.decay != "none"


@pytest.mark.parametrize(
    ("recipe", "workdir", "options", "named"),
    [
        (3, "run", {}, r"a recipe has a name, as \"bert:mini\", and not 3 \(int\)"),
        ({"a": 1}, "run", {}, "a recipe has a name"),
        ("bert:nope", "run", {}, r"^configs/bert\.py:nope: there is no preset"),
        ("brt", "run", {}, r"^brt: did you mean configs/bert\.py\?"),
        ("bert", None, {}, r"takes a workdir, a folder, and was given None"),
        ("bert", "", {}, "takes a workdir"),
        ("bert", "run", dict(changes=3), "changes are a dict"),
        ("bert", "run", dict(accept_changes="yes"), "is to be True or False"),
    ],
)
def test_what_is_no_recipe_workdir_or_change_is_named(recipe, workdir, options, named):
    with pytest.raises(UserError, match=named):
        train(recipe, workdir, **options)


def test_a_workdir_that_is_an_address_is_refused_as_by_the_command():
    with pytest.raises(quartet.UserError, match="mount the bucket"):
        train("bert", "gs://bucket/run")


def test_the_package_offers_what_it_promises_and_no_more():
    assert set(quartet.__all__) <= set(dir(quartet))
    assert quartet.load_recipe is load_recipe
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = quartet.nothing


@pytest.mark.slow
def test_a_fresh_interpreter_trains_and_uses_runs(toy, tmp_path):
    (tmp_path / "a.txt").write_text(toy.text.read_text())
    environment = os.environ | {"XLA_FLAGS": ""}
    done = commands.run("-c", CODE, tmp_path, environment=environment, folder=ROOT)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    assert said["vectors"] == [2, 16]
    assert (said["tokens"], said["mask"], said["again"]) == (2, [3], [16])
    assert said["alike"] == pytest.approx(1, abs=1e-5)
    assert said["score"] < 0
    assert said["label"] in ("no", "yes")
