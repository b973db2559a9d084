"""A task's LSTM reads words alone, and averages of layers of its own."""

import jax
import numpy as np
import pytest

import modules
from finetune import tasks
from modules.backbones import text_mask
from modules.layers.rnn import Recurrent
from pretrain.runtime.errors import UserError
from tests.support import tagging_data
from tests.support.compiler import quick_jit
from tests.support.tagging_data import EXAMPLES

OWN = 2
FEATURES = dict(name="scalar_mix", frozen=True, l2=0.5)
FIELDS = dict(name="recurrent", features=FEATURES, U=5, layers=2, join=(0, 2), word_D=3)


@pytest.fixture(scope="module")
def case():
    """A task on ELMo with all of it, its weights drawn at random, and its rows."""
    form = tagging_data.form("elmo", own=OWN)
    module = tagging_data.task(form, encoder=FIELDS)
    rows = tagging_data.batch(form)
    return module, tagging_data.drawn(module, rows), rows


@pytest.fixture(scope="module")
def found(case):
    """Parameters -> what the encoder makes of the rows, and the backbone's layers."""
    task, _, rows = case

    def both(module):
        h_BLD = module.encoder(rows, train=False)
        mask = text_mask(module.backbone, valid_BL=rows["valid_BL"])
        return h_BLD, module.backbone.layer_states(rows["tokens_BLW"], mask=mask).h

    return quick_jit(lambda params: task.apply({"params": params}, method=both))


def test_the_lstm_reads_words_as_if_nothing_stood_around_them(case, found):
    _, params, rows = case
    h_BLD, layers_NBLD = jax.device_get(found(params))
    own = params["encoder"]
    mixes = own["features"]["mixed"]
    shares = np.exp(mixes["w_N"]) / np.exp(mixes["w_N"]).sum(1, keepdims=True)
    elmo_mBLD = np.einsum("m,mN,NBLD->mBLD", mixes["gamma"], shares, layers_NBLD)
    lstm = Recurrent(5, Z=2)
    for b, at in enumerate(rows["word_BL"][:2]):
        x_LD = np.concatenate([own["word_VD"][rows["own_BL"][b, at]], elmo_mBLD[0, b, at]], -1)
        for n in range(2):
            y_BLZD, _ = lstm.apply({"params": own[f"lstm_{n}"]}, x_LD[None])
            x_LD = np.asarray(y_BLZD[0].reshape(len(x_LD), -1))
        expected = np.concatenate([x_LD, elmo_mBLD[1, b, at]], -1)
        np.testing.assert_allclose(h_BLD[b, at], expected, rtol=1e-4, atol=1e-5)
        assert not h_BLD[b, ~at].any()


def test_each_use_has_an_average_of_its_own(case, found):
    D = 2 * tagging_data.BACKBONES["elmo"]["D"]
    for use, same in ((0, slice(-D, None)), (1, slice(0, -D))):
        params = jax.tree.map(np.copy, case[1])
        before = np.array(found(params)[0])  # before the change: JAX may read in place, and later
        params["encoder"]["features"]["mixed"]["w_N"][use, 1] += 3
        after = found(params)[0]
        np.testing.assert_array_equal(before[..., same], after[..., same])
        assert not np.allclose(before, after)


def test_words_that_are_rare_share_a_vector(case):
    _, _, rows = case
    words = [word for x in EXAMPLES for word in x["words"]]
    own = rows["own_BL"][rows["word_BL"]]
    known = {word for word in words if words.count(word) >= OWN}
    assert [number > 0 for number in own] == [word in known for word in words]
    assert len(set(own)) == len(known) + 1


def test_states_join_the_stack_after_its_first_layer(case):
    _, params, rows = case
    form = tagging_data.form("elmo", own=OWN)
    task = tagging_data.task(form, encoder=FIELDS | dict(join=(1,)))
    shapes = jax.eval_shape(lambda: task.init(jax.random.key(0), rows, train=False))["params"]
    widths = [shapes["encoder"][f"lstm_{n}"]["wx_ZDGU"].shape[1] for n in (0, 1)]
    D = 2 * tagging_data.BACKBONES["elmo"]["D"]
    assert widths == [FIELDS["word_D"], 2 * FIELDS["U"] + D]
    assert params["encoder"]["features"]["mixed"]["w_N"].shape[0] == 2


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (dict(language_model=0.5, encoder=dict(frozen=True)), "without task.encoder.frozen"),
        (dict(encoder=dict(name="recurrent", word_D=3)), "word_D=3 with 0 words"),
        (dict(encoder=dict(name="recurrent", word_V=3)), "word_D=0 with 3 words"),
        (dict(encoder=dict(name="recurrent", join=(2,))), "places from 0, the input, to 1"),
        (dict(encoder=dict(name="recurrent", join=(1,))), "the input is empty"),
    ],
)
def test_parts_without_what_they_need_are_refused(fields, message):
    form = tagging_data.form("elmo")
    backbone = modules.build(**tagging_data.BACKBONES["elmo"])
    with pytest.raises((UserError, ValueError), match=message):
        tasks.build_task(backbone, form, **fields)
