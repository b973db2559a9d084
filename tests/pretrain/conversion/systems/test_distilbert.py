"""A DistilBERT of transformers computes the same here, is tokenised the same, and goes back."""

import pytest

from pretrain.runtime.json_files import read_json
from tests.support import imported_release as releases


@pytest.fixture(scope="module")
def imported(tmp_path_factory):
    """The run of the release, and how far its states and its logits are off."""
    workdir = tmp_path_factory.mktemp("run") / "distilbert"
    return workdir, releases.measure_differences("distilbert", workdir)


def test_states_and_logits_are_those_of_transformers(imported):
    assert max(imported[1]) < 2e-6


def test_pairs_are_framed_as_transformers_does(imported):
    releases.assert_same_rows("distilbert", imported[0])


def test_it_goes_out_as_it_came(imported, tmp_path):
    releases.assert_goes_back("distilbert", imported[0], tmp_path / "out")
    names = read_json(tmp_path / "out" / "tokenizer_config.json")["model_input_names"]
    assert names == ["input_ids", "attention_mask"]
