"""A task's LSTM reads words alone, and averages of layers of its own."""

import functools

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
    form = tagging_data.form("elmo", min_count=OWN)
    module = tagging_data.task(form, encoder=FIELDS)
    rows = tagging_data.batch(form)
    return module, tagging_data.draw_params(module, rows), rows


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
    places = rows["word_BL"]
    read = [
        np.concatenate([own["word_VD"][rows["own_BL"][b, at]], elmo_mBLD[0, b, at]], -1)
        for b, at in enumerate(places)
    ]
    for n in range(2):
        read = read_words("lstm", own[f"lstm_{n}"], read)
    for b, at in enumerate(places):
        expected = np.concatenate([read[b], elmo_mBLD[1, b, at]], -1)
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


def read_words(cell, params, rows):
    """Both directions of a layer over words alone, row by row."""
    lengths = [len(x_LD) for x_LD in rows]
    padded = np.stack([np.pad(x, ((0, max(lengths) - len(x)), (0, 0))) for x in rows])
    valid = np.arange(max(lengths)) < np.array(lengths)[:, None]
    layer = Recurrent(params["wh_ZDGU"].shape[-1], cell, Z=2)
    y_BLZD, _ = quick_jit(layer.apply)({"params": params}, padded, valid=valid)
    return [y_LZD[:n].reshape(n, -1) for y_LZD, n in zip(np.asarray(y_BLZD), lengths, strict=True)]


TAGGER = dict(
    name="recurrent",
    U=3,
    layers=2,
    cell="gru",
    word_D=2,
    characters=dict(E=2, filters=((3, 4),)),
    features=dict(name="backbone", frozen=True),
)


@pytest.mark.parametrize(
    ("system", "join"),
    [("bert", ()), ("elmo", (1,)), ("gpt", (2,)), ("bert", (0, 1))],
)
def test_states_of_any_backbone_join_where_they_are_asked_for(system, join):
    form = tagging_data.form(system, min_count=1, own_characters=9)
    fields = dict(encoder=TAGGER | dict(join=join))
    task = tagging_data.task(form, **fields) if join else tasks.build_task(None, form, **fields)
    rows = tagging_data.batch(form)
    params = tagging_data.draw_params(task, rows)

    def parts(module):
        own = module.encoder
        h_KBLD = own.features.each(rows, train=False) if join else None
        chars_BLD = own.characters(rows["own_chars_BLW"], train=False)
        return own(rows, train=False), h_KBLD, chars_BLD

    h_BLD, h_KBLD, chars_BLD = jax.device_get(
        quick_jit(lambda p: task.apply({"params": p}, method=parts))(params)
    )
    own = params["encoder"]
    places = rows["word_BL"]
    read = [
        np.concatenate([chars_BLD[b, at], own["word_VD"][rows["own_BL"][b, at]]], -1)
        for b, at in enumerate(places)
    ]
    for n in range(3):
        read = read_words("gru", own[f"gru_{n - 1}"], read) if n else read
        if n in join:
            states = h_KBLD[join.index(n)]
            read = [np.concatenate([x, states[b, places[b]]], -1) for b, x in enumerate(read)]
    for b, at in enumerate(places):
        np.testing.assert_allclose(h_BLD[b, at], read[b], rtol=1e-4, atol=1e-5)
    if join == (1,):  # the paper's place
        loss = lambda p: task.apply({"params": p}, rows, train=False)["loss"].total  # noqa: E731
        grads = quick_jit(jax.grad(loss))(params)
        assert not any(x.any() for x in jax.tree.leaves(grads.pop("backbone")))
        # Of bytes that no word has there is no gradient, but of the table as a whole.
        assert all(x.any() for x in jax.tree.leaves(grads))


@pytest.mark.parametrize(("layers", "below"), [(1, "word_VD"), (2, "lstm_0")])
def test_the_input_of_every_layer_is_dropped_in_training(layers, below):
    form = tagging_data.form("bert", min_count=1)
    fields = dict(name="recurrent", U=2, layers=layers, word_D=3, join=(), input_dropout=1 - 1e-6)
    task, rows = tasks.build_task(None, form, encoder=fields), tagging_data.batch(form)
    params = tagging_data.draw_params(task, rows)
    own = params["encoder"]
    other = {"encoder": own | {below: jax.tree.map(np.negative, own[below])}}

    @functools.partial(quick_jit, static_argnums=1)
    def encode(params, train):
        rngs = {"dropout": jax.random.key(0)}
        return task.apply(
            {"params": params}, method=lambda x: x.encoder(rows, train=train), rngs=rngs
        )

    np.testing.assert_array_equal(encode(params, True), encode(params | other, True))
    assert not np.allclose(encode(params, False), encode(params | other, False))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (dict(language_model=0.5, encoder=dict(frozen=True)), "without task.encoder.frozen"),
        (dict(encoder=dict(name="recurrent", word_D=3)), "word_D=3 with 0 words"),
        (dict(encoder=dict(name="recurrent", word_V=3)), "word_D=0 with 3 words"),
        (dict(encoder=dict(name="recurrent", join=(2,))), "places from 0, the input, to 1"),
        (dict(encoder=dict(name="recurrent", join=(1,))), "the input is empty"),
        (dict(encoder=dict(name="recurrent", char_W=9)), "own_characters=9 and task.encoder.chara"),
    ],
)
def test_parts_without_what_they_need_are_refused(fields, message):
    form = tagging_data.form("elmo")
    backbone = modules.build(**tagging_data.BACKBONES["elmo"])
    with pytest.raises((UserError, ValueError), match=message):
        tasks.build_task(backbone, form, **fields)


@pytest.mark.parametrize(
    ("fields", "message"), [({}, "'backbone' reads a backbone"), (FIELDS, "joins the states of a")]
)
def test_without_a_backbone_its_readers_are_refused(fields, message):
    form = tagging_data.form("bert", min_count=OWN)
    with pytest.raises((UserError, ValueError), match=message):
        tasks.build_task(None, form, encoder=fields | dict(features=None, word_V=None))
