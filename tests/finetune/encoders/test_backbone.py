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
    params = tagging_data.drawn(encoder, rows)
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
