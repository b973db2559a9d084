"""The plain encoder is the backbone, which tasks may share."""

import jax
import numpy as np
import pytest
from flax import linen as nn

import modules
from finetune import encoders
from modules.backbones import text_mask
from pretrain.runtime.errors import UserError
from tests.support import tagging_data

FORM = tagging_data.form("elmo")


@pytest.fixture(scope="module")
def backbone():
    return modules.build(**tagging_data.BACKBONES["elmo"])


@pytest.fixture(scope="module")
def rows():
    return tagging_data.batch(FORM)


def test_the_states_are_the_last_of_the_backbone(backbone, rows):
    encoder = encoders.build(backbone)
    params = tagging_data.draw_params(encoder, rows)
    states = tagging_data.told(encoder, params, rows, "__call__", train=False)
    given = dict(mask=text_mask(backbone, valid_BL=rows["valid_BL"]), train=False)
    top = tagging_data.told(backbone, params["backbone"], rows["tokens_BLW"], None, **given).h
    np.testing.assert_array_equal(states, top)


def test_two_tasks_on_one_encoder_share_its_parameters(backbone, rows):
    encoder = encoders.build(backbone)
    one, other = (FORM.build_task(backbone, encoder, {}, {}) for _ in range(2))

    class Both(nn.Module):
        one: nn.Module
        other: nn.Module

        def __call__(self, batch, *, train):
            return self.one(batch, train=train), self.other(batch, train=train)

    shapes = jax.eval_shape(lambda: Both(one, other).init(jax.random.key(0), rows, train=False))
    assert shapes["params"]["one"].keys() == {"backbone", "emissions"}
    assert shapes["params"]["other"].keys() == {"emissions"}


def test_windows_divide_rows_and_need_a_memory(backbone):
    with pytest.raises(UserError, match="of a backbone with a memory"):
        encoders.build(backbone, window=4)
    form = tagging_data.form("xlnet")
    sizes = tagging_data.BACKBONES["xlnet"] | dict(V=form.inputs.tokenizer.V, M=4)
    encoder = encoders.build(modules.build(**sizes), window=7)
    with pytest.raises(UserError, match=r"L=40 is no multiple of task\.encoder\.window=7"):
        encoder.init(jax.random.key(0), tagging_data.batch(form), train=False)


RNN = modules.build("recurrent", V=9, D=4, U=4, Z=1)
READ = {
    "tokens_BL": np.arange(22).reshape(2, 11) % 9,
    "valid_BL": np.arange(11) < np.array([[11], [7]]),
    "weight_B": np.float32([1, 0]),
}


def test_chunks_of_a_recurrent_network_are_read_from_the_state_before():
    whole, chunked = (encoders.build(RNN, window=window) for window in (0, 4))
    params = tagging_data.draw_params(whole, READ)
    expected = tagging_data.told(whole, params, READ, "__call__", train=False)
    found = tagging_data.told(chunked, params, READ, "__call__", train=False)
    np.testing.assert_allclose(found, expected, atol=1e-6)
    with pytest.raises(UserError, match=r"reads one way, model\.Z=1"):
        encoders.build(RNN.clone(Z=2), window=4)


def test_penalties_of_states_are_of_real_positions_and_of_training():
    encoder = encoders.build(RNN, ar=2.0, tar=3.0)
    h_BLD = np.random.default_rng(0).normal(size=(2, 11, 4)).astype("f")
    assert encoder.add_losses({}, h_BLD, READ, train=False) == {}
    sums = encoder.add_losses({}, h_BLD, READ, train=True)
    means = {name: float(x.total / x.weight) for name, x in sums.items() if x.train}
    ar, tar = np.square(h_BLD[0]).mean(), np.square(np.diff(h_BLD[0], axis=0)).mean()
    assert means == pytest.approx({"ar": 2 * ar, "tar": 3 * tar}, rel=1e-5)
