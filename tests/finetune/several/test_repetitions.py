"""A workdir holds a single job, or one for each seed and fold, and never both."""

import pytest
from ml_collections import ConfigDict

from finetune import job as jobs
from finetune import main
from finetune.several.repetitions import KINDS, check_folder
from pretrain.runtime.errors import UserError
from pretrain.runtime.job_options import JobOptions

SETTINGS = {  # by kind: seeds and folds of the recipe
    "": (1, 0),
    "seed": (2, 0),
    "fold": (1, 3),
    "seed/fold": (2, 3),
}
ALONE = JobOptions(joins=False)


def recipe(seeds: int, folds: int) -> ConfigDict:
    return ConfigDict(dict(seed=5, num_seeds=seeds, data=dict(train="a", folds=folds, fold=None)))


def leave_run(workdir, config: ConfigDict) -> None:
    """Leaves what the first job of a recipe does that was stopped."""
    name, first = next(iter(jobs.list_recipes(config).items()))
    (workdir / name / "checkpoints/5").mkdir(parents=True)
    (workdir / name / "config.json").write_text(first.to_json())


@pytest.mark.parametrize("new", SETTINGS)
@pytest.mark.parametrize("old", SETTINGS)
def test_a_workdir_of_one_kind_of_job_refuses_the_others(tmp_path, old, new):
    leave_run(tmp_path, recipe(*SETTINGS[old]))
    names = jobs.list_recipes(recipe(*SETTINGS[new]))
    if old == new:
        check_folder(tmp_path, names)
        return
    with pytest.raises(UserError, match="holds a run of another recipe") as error:
        check_folder(tmp_path, names)
    assert f"of {KINDS[old]} (num_seeds" in str(error.value)
    assert f"this one is of {KINDS[new]};" in str(error.value)


@pytest.mark.parametrize("accepts", [False, True])
def test_seeds_beside_a_single_job_are_refused_before_any_is_trained(tmp_path, accepts):
    leave_run(tmp_path, recipe(1, 0))
    with pytest.raises(UserError, match="a job for each seed;"):
        main.main(recipe(2, 0), tmp_path, ALONE._replace(accept_changes=accepts))
    assert not list(tmp_path.glob("seed-*"))


def test_folders_that_hold_no_run_refuse_nothing(tmp_path):
    (tmp_path / "seed-0").mkdir()
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "checkpoints").mkdir()  # of a run that never saved
    check_folder(tmp_path, [""])
    check_folder(tmp_path, ["seed-0", "seed-1"])
