"""A RoBERTa of transformers computes the same here, is tokenised the same, and goes back."""

import numpy as np
import pytest

from pretrain.conversion import exporter
from pretrain.conversion.systems import load_system
from pretrain.formats import safetensors
from pretrain.inference.trained_run import load_run
from pretrain.runtime.errors import UserError
from pretrain.runtime.json_files import read_json, update_json
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
    theirs = releases.read_outputs("roberta")
    rows = releases.frame_pairs(imported[0], theirs["tokens"].shape[1])
    np.testing.assert_array_equal(rows["valid_BL"], theirs["valid"])
    is_real = rows["valid_BL"]
    np.testing.assert_array_equal(rows["tokens_BL"][is_real], theirs["tokens"][is_real])
    assert "segments_BL" not in rows


def test_it_goes_out_as_it_came_but_for_rows_that_nothing_reads(imported, tmp_path):
    exporter.export_weights(imported[0], tmp_path / "out", lambda _: None)
    theirs = releases.FIXTURES / "roberta"
    with (
        safetensors.open_arrays(theirs) as one,
        safetensors.open_arrays(tmp_path / "out") as other,
    ):
        assert one.specs.keys() == other.specs.keys()
        for name in one.specs:
            first = 2 if name.endswith("position_embeddings.weight") else 0
            np.testing.assert_array_equal(one.read(name)[first:], other.read(name)[first:])
    ours, given = (read_json(x / "config.json") for x in (tmp_path / "out", theirs))
    assert {name: given[name] for name in ours if name in given} == {
        name: ours[name] for name in ours if name in given
    }
    assert given["max_position_embeddings"] - 2 == load_run(imported[0]).backbone.L


def test_positions_of_another_padding_are_refused(tmp_path):
    release = bert_release.copy(releases.FIXTURES / "roberta", tmp_path / "release")
    update_json(release / "config.json", pad_token_id=0)
    with pytest.raises(UserError, match="pad_token_id is 0, and only 1"):
        bert_release.import_release(release, tmp_path / "run")


def test_heads_are_those_of_its_classes():
    heads = load_system("roberta").HEADS
    assert heads["class"][0].rows["head/Dense_0/kernel"][0] == "classifier.dense.weight"
    assert heads["choice"][1].rows["head/Dense_0/kernel"][0] == "roberta.pooler.dense.weight"
