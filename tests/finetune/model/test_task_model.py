"""A task's LSTM reads words alone, and averages of layers of its own."""

import jax
import numpy as np
import pytest

from finetune.model.task_model import Features
from finetune.tasks.tag import Task
from modules.backbones import text_mask
from modules.layers.rnn import Recurrent
from pretrain.runtime.errors import UserError
from tests.support import tagging_data
from tests.support.tagging_data import EXAMPLES
from tests.support.xlnet_inputs import quick_jit

FIELDS = dict(
    mix=True, frozen=True, lambda_=0.5, bilstm=5, bilstm_layers=2, again=True, own_D=3, own=2
)


@pytest.fixture(scope="module")
def case():
    """A task on ELMo with all of it, its weights drawn at random, and its rows."""
    form = tagging_data.form("elmo", own=FIELDS["own"])
    module = tagging_data.task(form, **{k: v for k, v in FIELDS.items() if k != "own"})
    rows = tagging_data.batch(form)
    return module, tagging_data.drawn(module, rows), rows


@pytest.fixture(scope="module")
def found(case):
    """Parameters -> what `Features` makes of the rows, and the backbone's layers."""
    task, _, rows = case

    def both(module):
        h_BLD = module.states(rows, rows["word_BL"], train=False)
        mask = text_mask(module.backbone, valid_BL=rows["valid_BL"])
        return h_BLD, module.backbone.layer_states(rows["tokens_BLW"], mask=mask).h

    return quick_jit(lambda params: task.apply({"params": params}, method=both))


def test_the_lstm_reads_words_as_if_nothing_stood_around_them(case, found):
    _, params, rows = case
    h_BLD, layers_NBLD = jax.device_get(found(params))
    own = params
    mixes = own["encoder"]["mixed"]
    shares = np.exp(mixes["w_N"]) / np.exp(mixes["w_N"]).sum(1, keepdims=True)
    elmo_mBLD = np.einsum("m,mN,NBLD->mBLD", mixes["gamma"], shares, layers_NBLD)
    lstm = Recurrent(5, Z=2)
    for b, at in enumerate(rows["word_BL"][:2]):
        x_LD = np.concatenate([own["own_VD"][rows["own_BL"][b, at]], elmo_mBLD[0, b, at]], -1)
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
        params["encoder"]["mixed"]["w_N"][use, 1] += 3
        after = found(params)[0]
        np.testing.assert_array_equal(before[..., same], after[..., same])
        assert not np.allclose(before, after)


def slopes(task, params, rows):
    return quick_jit(
        jax.grad(lambda p: task.apply({"params": p}, rows, train=False)["loss"].total)
    )(params)


def test_a_frozen_backbone_has_no_gradient_and_all_else_has(case):
    task, params, rows = case
    found = slopes(task, params, rows)
    assert not any(x.any() for x in jax.tree.leaves(found.pop("backbone")))
    assert all(x.any() for x in jax.tree.leaves(found))


def test_the_mixes_weights_are_held_near_0_by_the_penalty(case):
    task, params, rows = case
    free = task.clone(lambda_=0.0)
    held, plain = (
        tagging_data.told(m, params, rows, "__call__", train=False)["loss"] for m in (task, free)
    )
    w_N = params["encoder"]["mixed"]["w_N"]
    assert (held.total - plain.total) / held.weight == pytest.approx(
        0.5 * np.square(w_N).sum(), rel=1e-3
    )


def test_words_that_are_rare_share_a_vector(case):
    _, _, rows = case
    words = [word for x in EXAMPLES for word in x["words"]]
    own = rows["own_BL"][rows["word_BL"]]
    known = {word for word in words if words.count(word) >= FIELDS["own"]}
    assert [number > 0 for number in own] == [word in known for word in words]
    assert len(set(own)) == len(known) + 1


def test_without_an_lstm_the_states_are_the_encoder_s(case):
    task, params, rows = case
    plain = Features(task.backbone.clone(parent=None))
    states = tagging_data.told(plain, {"backbone": params["backbone"]}, rows, "states", train=False)
    backbone = task.backbone.clone(parent=None)
    given = dict(mask=text_mask(backbone, valid_BL=rows["valid_BL"]), train=False)
    top = tagging_data.told(backbone, params["backbone"], rows["tokens_BLW"], None, **given).h
    np.testing.assert_array_equal(states, top)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"lm": 0.5}, "reads from left to right"),
        ({"window": 4}, "of a backbone with a memory"),
        ({"again": True}, "set task.bilstm"),
        ({"bilstm": 4, "own_D": 3}, "own_D=3 with 0 words"),
        ({"bilstm": 4, "own_V": 3}, "own_D=0 with 3 words"),
    ],
)
def test_parts_without_what_they_need_are_refused(case, fields, message):
    for kind in (Features, Task):
        with pytest.raises(UserError, match=message):
            kind(case[0].backbone, **fields)
