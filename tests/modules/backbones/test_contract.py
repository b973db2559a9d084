"""`layer_states` of every backbone: each layer's are those of a model that ends there."""

import dataclasses
import functools

import jax
import numpy as np
import pytest
from flax import linen as nn

import modules
from modules import plugins
from modules.backbones import text_mask
from modules.masks import Mask
from tests.support import transformer_inputs as cases
from tests.support import xlnet_inputs, xlnet_reference
from tests.support.compiler import quick_jit
from tests.support.tiny_models import draw_params
from tests.support.xlnet_inputs import off

pytest_plugins = ["tests.support.tiny_models"]
pytestmark = pytest.mark.usefixtures("exactly")

RAGGED = np.arange(11) < [[11], [7], [4]]
STACKS = {
    "BERT": cases.tiny(**cases.BERT),
    "banded": cases.tiny(**cases.GPT2, window=3),
    "two_stream": xlnet_inputs.backbone(xlnet_reference.Config(n_layer=3)),
}


@pytest.mark.parametrize("name", STACKS)
def test_a_layers_states_are_those_of_a_model_that_ends_there(name):
    model, tokens_BL = STACKS[name], cases.tokens(*RAGGED.shape)
    mask, params = text_mask(model, valid_BL=RAGGED), draw_params(model)
    read = functools.partial(model.apply, method="layer_states")
    h_NBLD = quick_jit(read)({"params": params}, tokens_BL, mask=mask).h
    assert h_NBLD.shape == (model.N + 1, *RAGGED.shape, model.D)
    for n in (2, model.N):
        below = params | {"layers": jax.tree.map(lambda x, n=n: x[:n], params["layers"])}
        run = functools.partial(model.clone(N=n).apply, train=False)
        expected_BLD = quick_jit(run)({"params": below}, tokens_BL, mask=mask).h
        own_BLD = h_NBLD[n]
        if "final_norm" in params and n < model.N:  # a call norms the top, whichever that is
            norm = params["final_norm"]
            own_BLD = jax.nn.standardize(own_BLD, epsilon=model.epsilon) * norm["scale_D"]
            own_BLD += norm["bias_D"]
        assert off(own_BLD[RAGGED], expected_BLD[RAGGED]) < 1e-5


SMALL = {
    "awd_lstm": dict(N=2, U=8),
    "elmo": dict(N=2, U=8, inputs="words"),
    "recurrent": dict(N=2, U=8),
    "text_cnn": dict(filters=((2, 4), (3, 4))),
    "text_rcnn": dict(U=4, F=8),
    "text_rnn": dict(U=8, tasks=("a", "b")),
}


@pytest.mark.parametrize("name", plugins.names("modules.backbones", "Backbone"))
def test_every_backbone_keeps_the_contract(name):
    fields = SMALL.get(name, dict(N=2, H=2, K=4, F=12))
    backbone = modules.build(name, V=13, D=8, **fields)
    assert {field.name for field in dataclasses.fields(backbone)} >= backbone.FREE_FIELDS
    tokens_BL, mask = np.zeros((2, 5), int), text_mask(backbone)

    edited = []

    def note(x_BLD):
        edited.append(x_BLD.shape)
        return x_BLD

    def read(key):
        rngs = {"params": key, "dropout": key}
        given = dict(mask=mask, train=False)
        (out, table_VD), variables = nn.init_with_output(
            lambda model: (model(tokens_BL, **given), model.table()), backbone
        )(rngs)
        every = backbone.apply(variables, tokens_BL, mask=mask, method="layer_states")
        _, marked = backbone.apply(variables, tokens_BL, **given, mutable=["perturbations"])
        backbone.apply(variables, tokens_BL, **given, edit=note)
        return out.h, every.h, table_VD, marked

    h_BLD, h_NBLD, table_VD, marked = jax.eval_shape(read, jax.random.key(0))
    assert [x.shape for x in jax.tree.leaves(marked)] == [(2, 5, 8)]  # what the first layer reads
    assert edited == [(2, 5, 8)]
    assert h_NBLD.shape == (backbone.N + 1, *h_BLD.shape)
    assert (h_BLD.shape[:2], table_VD.shape) == ((2, 5), (13, 8))
    assert backbone.refusal(mask) == ""
    assert 0 < backbone.flops(2, 5, 3) < backbone.flops(4, 5, 3)


CAUSAL, GROUPED = Mask(is_causal=True), Mask(groups_BL=np.zeros((2, 5), int))
REFUSED = [
    ("awd_lstm", {}, Mask(), "model.Z=1 sees nothing of what comes"),
    ("text_cnn", {}, CAUSAL, "sees what comes"),
    ("text_cnn", {}, GROUPED, "it takes lengths, not groups_BL"),
    ("text_rcnn", {}, CAUSAL, "has read what comes"),
    ("text_rcnn", {}, GROUPED, "it takes lengths, not groups_BL"),
    ("text_rnn", dict(sharing="shared"), CAUSAL, "reads what comes, too"),
    ("text_rnn", dict(sharing="shared"), GROUPED, "no groups_BL"),
    ("recurrent", dict(Z=2), CAUSAL, "the second direction .* sees what comes"),
    ("recurrent", dict(Z=1), Mask(), "sees nothing of what comes"),
    ("recurrent", dict(Z=2), GROUPED, "documents in one row are read in one direction"),
    ("recurrent", dict(Z=1), CAUSAL & Mask(window=2), "not window"),
    ("elmo", dict(Z=2), CAUSAL, "model.Z=2 sees what comes: set model.Z=1"),
    ("elmo", dict(Z=1), Mask(), "model.Z=1 sees nothing of what comes"),
    ("elmo", dict(Z=1), CAUSAL & Mask(window=3), "documents, not window"),
]


@pytest.mark.parametrize(("name", "fields", "mask", "message"), REFUSED)
def test_a_mask_that_it_cannot_honour_is_refused(name, fields, mask, message):
    backbone = modules.build(name, V=13, D=8, **SMALL[name] | fields)
    read = functools.partial(backbone.init, mask=mask, train=False)
    with pytest.raises(ValueError, match=message):
        jax.eval_shape(read, jax.random.key(0), np.zeros((2, 5), int))
