"""The language-model head: its forms score what the formulas say."""

import jax
import numpy as np
import pytest

import modules
from modules.heads import language_model
from tests.support.compiler import quick_jit
from tests.support.xlnet_inputs import off

B, P, V, D = 2, 5, 11, 4
FORMS = {
    "GPT": {},
    "XLNet": dict(bias=True),
    "BERT": dict(bias=True, transform=True),
    "ELMo": dict(tied=False, bias=True),
}


def draw(head, seed=0):
    """(params, states, targets, weights, table) large enough to matter."""
    rng = np.random.default_rng(seed)
    shapes = jax.eval_shape(head.init, jax.random.key(0)).get("params", {})
    params = jax.tree.map(lambda x: np.float32(rng.normal(0, 0.7, x.shape)), shapes)
    h_BPD, table_VD = (np.float32(rng.normal(0, 1, x)) for x in ((B, P, D), (V, D)))
    return params, h_BPD, rng.integers(0, V, (B, P)), np.float32(rng.random((B, P))), table_VD


@pytest.mark.parametrize("form", FORMS)
def test_loss_and_nats_are_those_of_the_logits(form):
    head = language_model.LanguageModelHead(V, D, **FORMS[form])
    params, h_BPD, targets_BP, weights_BP, table_VD = draw(head)

    @quick_jit
    def score(params):
        bound = head.bind({"params": params})
        states = h_BPD, targets_BP, weights_BP, table_VD
        nats_BP = bound.nats(h_BPD, targets_BP, table_VD, chunks=2)
        loss = bound.cross_entropy(*states, chunks=3)["loss"]
        return bound.logits(h_BPD, table_VD), nats_BP, loss

    logits_BPV, nats_BP, loss = score(params)
    if form != "BERT":
        w_VD = params.get("softmax_VD", table_VD)
        assert off(logits_BPV, np.float64(h_BPD) @ w_VD.T + params.get("bias_V", 0)) < 1e-6
    log_BPV = np.float64(jax.nn.log_softmax(logits_BPV))
    own_BP = np.take_along_axis(log_BPV, targets_BP[..., None], -1)[..., 0]
    assert off(nats_BP, own_BP) < 1e-6
    assert float(loss.total) == pytest.approx(-(own_BP * weights_BP).sum(), rel=1e-5)


def test_a_softmax_of_its_own_begins_as_the_original_s():
    head = language_model.LanguageModelHead(400, 16, tied=False, bias=True)
    params = head.init(jax.random.key(0))["params"]
    assert np.std(params["softmax_VD"]) == pytest.approx(1 / 4, rel=0.03)
    assert not params["bias_V"].any()


def test_sizes_and_type_are_the_backbone_s():
    backbone = modules.build("transformer", V=9, D=8, dtype="bfloat16", activation="relu")
    head = language_model.build(backbone, bias=True)
    assert (head.V, head.D, head.dtype, head.activation) == (9, 8, "bfloat16", "relu")


def test_a_head_without_a_vocabulary_says_so():
    head = language_model.LanguageModelHead(0, D)
    with pytest.raises(ValueError, match="V=0: this head has no vocabulary"):
        head.bind({}).logits(np.zeros((1, 1, D), np.float32), None)
