"""Published weights compute here what their releases say."""

import numpy as np
import pytest

from pretrain.conversion.systems import Source, elmo, xlnet
from pretrain.formats import hdf5, tensorflow
from tests.support import array_mapping as cases


@pytest.mark.parametrize("case", ["empty", "tune", "pre"])
def test_published_xlnets_compute_what_they_say(case, tokens, tmp_path):
    folder = cases.PUBLISHED / f"xlnet-tf/tests/test_checkpoint_{case}"
    if not folder.exists():
        pytest.skip(f"the published checkpoints are not there: {folder}")
    (tmp_path / "spiece.model").write_bytes(tokens.model)
    with tensorflow.open_arrays(folder) as file:
        source = Source(folder, "tensorflow", file.specs, {"vocabulary": str(tmp_path)})
        described = xlnet.read_release(source)
        shapes = cases.shapes(described.model, described.head)
        table = xlnet.build_table("tensorflow", shapes, list(file.specs))
        params = cases.read(table, shapes, {name: file.read(name) for name in file.specs})
    assert set(table.absent) == (set() if case == "pre" else {"backbone/query_1D", "head/bias_V"})
    found = xlnet.compare_outputs(cases.run(described, params, tmp_path / "run"), source)
    memories = () if case == "empty" else ("memory 0", "memory 1")
    assert found.keys() == {"output", *memories}
    for name, (difference, most) in found.items():
        assert difference <= most == 1e-6, name
    if case == "pre":
        params["backbone/layers/ffn_norm/bias_D"] += np.float32(0.001)
        found = xlnet.compare_outputs(cases.run(described, params, tmp_path / "run"), source)
        assert found["output"][0] > 1e-6


@pytest.mark.parametrize("kind", ["npz", "hdf5"])
def test_a_release_without_outputs_is_not_compared(kind, tmp_path):
    system = elmo if kind == "hdf5" else xlnet
    assert system.compare_outputs(None, Source(tmp_path, kind, {})) == {}


MODEL = cases.PUBLISHED / "bilm-tf/model"


def test_published_elmos_compute_what_they_say(tmp_path):
    if not MODEL.exists():
        pytest.skip(f"the published weights are not there: {MODEL}")
    with hdf5.open_arrays(MODEL / "lm_weights.hdf5") as file:
        source = Source(MODEL, "hdf5", file.specs)
        described = elmo.read_release(source)
        shapes = cases.shapes(described.model, described.head)
        arrays = {name: file.read(name) for name in file.specs}
        params = cases.read(elmo.build_table("hdf5", shapes), shapes, arrays)
    assert described.missing == ("softmax",)
    found = elmo.compare_outputs(cases.run(described, params, tmp_path / "run"), source)
    difference, most = found["states"]
    assert 0 < difference <= most == 1e-5
