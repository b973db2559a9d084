"""An ELECTRA of transformers computes the same here, is tokenised the same, and goes back."""

import numpy as np
import pytest

from pretrain.conversion.name_map import reconcile
from pretrain.conversion.systems import electra
from tests.support import array_mapping, transformer_inputs
from tests.support import imported_release as releases


@pytest.fixture(scope="module")
def imported(tmp_path_factory):
    """The run of the generator, and how far its states and its logits are off."""
    workdir = tmp_path_factory.mktemp("run") / "electra"
    return workdir, releases.measure_differences("electra", workdir)


def test_states_and_logits_are_those_of_transformers(imported):
    assert max(imported[1]) < 2e-6


def test_pairs_are_framed_as_transformers_does(imported):
    releases.assert_same_rows("electra", imported[0])


def test_it_goes_out_as_it_came(imported, tmp_path):
    releases.assert_goes_back("electra", imported[0], tmp_path / "out")


def test_the_head_of_a_discriminator_is_left_out():
    model = dict(name="transformer", V=9, D=16, H=2, K=8, N=1, F=8, L=6, embedding_size=8)
    shapes = array_mapping.shapes(model | transformer_inputs.BERT | dict(pooler=False))
    names = ["electra.x", "discriminator_predictions.dense.weight"]
    table = electra.build_table("hugging_face", shapes, names)
    specs = table.specs(shapes, np.float32)
    specs["discriminator_predictions.dense.weight"] = specs["electra.embeddings_project.bias"]
    (why,) = reconcile(table, shapes, specs).ignored
    assert why == "the head of replaced tokens, which no objective here trains"
