"""A RoBERTa of transformers computes the same here, is tokenised the same, and goes back."""

import pytest

from pretrain.conversion.systems import load_system
from pretrain.inference.trained_run import load_run
from pretrain.runtime.errors import UserError
from pretrain.runtime.json_files import update_json
from tests.support import bert_release
from tests.support import imported_release as releases


@pytest.fixture(scope="module")
def imported(tmp_path_factory):
    """The run of the release, and how far its states and its logits are off."""
    workdir = tmp_path_factory.mktemp("run") / "roberta"
    return workdir, releases.measure_differences("roberta", workdir)


def test_states_and_logits_are_those_of_transformers(imported):
    assert max(imported[1]) < 2e-6


def test_pairs_are_framed_as_transformers_does(imported):
    releases.assert_same_rows("roberta", imported[0])


def test_it_goes_out_as_it_came_but_for_rows_that_nothing_reads(imported, tmp_path):
    releases.assert_goes_back("roberta", imported[0], tmp_path / "out", skipped=2)
    assert load_run(imported[0]).backbone.L == 18


def test_positions_of_another_padding_are_refused(tmp_path):
    release = bert_release.copy(releases.FIXTURES / "roberta", tmp_path / "release")
    update_json(release / "config.json", pad_token_id=0)
    with pytest.raises(UserError, match="pad_token_id is 0, and only 1"):
        bert_release.import_release(release, tmp_path / "run")


def test_heads_are_those_of_its_classes():
    heads = load_system("roberta").HEADS
    assert heads["class"][0].rows["head/Dense_0/kernel"][0] == "classifier.dense.weight"
    assert heads["choice"][1].rows["head/Dense_0/kernel"][0] == "roberta.pooler.dense.weight"
