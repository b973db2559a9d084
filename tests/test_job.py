"""pretrain/job.py: where a run lives when nobody says so, and where it cannot."""

import pytest
from absl import flags
from absl.testing import flagsaver

from pretrain import job
from pretrain.errors import UserError
from tests.toy import ROOT


@pytest.fixture
def given(monkeypatch):
    """Takes a command line, as a main does."""
    monkeypatch.chdir(ROOT)

    def given(*words: str) -> None:
        flags.FLAGS(["main", *words])

    with flagsaver.flagsaver():
        yield given


@pytest.mark.parametrize(
    ("named", "folder"),
    [
        ("configs/xlnet.py", "xlnet-mini"),
        ("configs/bert.py:large", "bert-large"),
        ("configs/finetune/glue.py", "glue-mrpc"),
        ("configs/finetune/glue.py:rte", "glue-rte"),
        ("configs/finetune/stsb.py", "stsb"),
    ],
)
def test_a_workdir_is_named_after_the_recipe_and_the_preset_it_takes(given, named, folder):
    given(f"--config={named}")
    assert job.workdir() == ROOT / "runs" / folder


def test_a_workdir_that_is_an_address_is_refused_before_a_folder_of_that_name_is_made(given):
    given("--config=configs/xlnet.py", "--workdir=gs://bucket/runs/xlnet")
    with pytest.raises(UserError, match="mount the bucket"):
        job.workdir()


def test_a_recipe_without_a_section_is_refused_by_what_it_lacks(given):
    given("--config=configs/finetune/stsb.py")
    with pytest.raises(UserError, match=r"configs/finetune/stsb\.py has no corpus, evals:"):
        job.check(job.CONFIG.value, ["corpus", "optim", "evals"])


def test_a_recipe_is_looked_at_number_by_number(given):
    given("--config=configs/gpt.py")
    job.CONFIG.value.optim.clip = float("nan")
    with pytest.raises(UserError, match=r"optim\.clip=nan"):
        job.check(job.CONFIG.value, ["optim"])
