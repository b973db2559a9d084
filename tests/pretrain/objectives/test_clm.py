"""Every token from those before it, and from its own document's."""

import functools

import jax
import numpy as np
import pytest

import modules
from modules.heads import language_model
from modules.masks import Mask
from pretrain.objectives import clm
from pretrain.runtime.errors import UserError
from pretrain.training import metrics
from tests.support.arrays import draw_variables
from tests.support.compiler import quick_jit

B, L, V = 3, 12, 31
STARTS = np.zeros((B, L), bool)
STARTS[0, 5] = STARTS[1, [0, 4, 9]] = True  # row 2 is one document


def objective(**fields):
    sizes = dict(V=V, D=16, H=2, K=8, N=2, F=32, L=L, dropout=0.0, attention_dropout=0.0)
    backbone = modules.build("transformer", attention="causal", norm="pre", **sizes)
    return clm.Objective(backbone, language_model.build(backbone), loss_chunks=2, **fields)


def batch():
    rng = np.random.default_rng(0)
    text_BL = rng.integers(0, V, (B, L + 1)).astype(np.int32)
    loss_mask_BL = np.ones((B, L), bool)
    loss_mask_BL[0, :3] = loss_mask_BL[2, 10:] = False
    return {
        "tokens_BL": text_BL[:, :-1],
        "next_BL": text_BL[:, 1:],
        "document_start_BL": STARTS,
        "valid_BL": np.ones((B, L), bool),
        "loss_mask_BL": loss_mask_BL,
        "weight_B": np.array([1, 1, 1], np.float32),
        "words_B": np.array([4, 5, 6], np.float32),
        "bytes_B": np.array([20, 30, 40], np.float32),
    }


@functools.cache
def params():
    init = functools.partial(objective().init, jax.random.key(0))
    return draw_variables(init, batch(), train=False, scale=0.3)["params"]


def run(given):
    """The sums of a batch."""
    return quick_jit(lambda p: objective().apply({"params": p}, given, train=False))(params())


@functools.cache
def gradient(across: bool):
    """(position_LD, loss_mask_BL) -> the loss's gradient by the positions' embedding.

    It has an entry for each place of a row, and nothing to do with the softmax.
    """

    def loss(position_LD, loss_mask_BL):
        backbone = params()["backbone"] | {"position_LD": position_LD}
        sums = objective(attend_across_documents=across).apply(
            {"params": {"backbone": backbone}},
            batch() | {"loss_mask_BL": loss_mask_BL},
            train=True,
            rngs={"dropout": jax.random.key(0)},
        )
        return sums["loss"].total

    return quick_jit(jax.grad(loss))


def slopes(across: bool, b: int, i: int):
    """How much the prediction at place i of row b depends on each place of the row."""
    loss_mask_BL = np.zeros((B, L), bool)
    loss_mask_BL[b, i] = True
    slopes_LD = gradient(across)(params()["backbone"]["position_LD"], loss_mask_BL)
    return np.abs(np.asarray(slopes_LD)).sum(1)


def test_the_loss_is_that_of_the_logits_of_each_place():
    given = batch()
    net = objective().backbone
    mask = Mask(is_causal=True, groups_BL=np.cumsum(STARTS, 1))
    read = functools.partial(net.apply, mask=mask, train=False)
    h_BLD = quick_jit(read)({"params": params()["backbone"]}, given["tokens_BL"]).h
    logits_BLV = np.asarray(h_BLD @ params()["backbone"]["token_VD"].T, np.float64)
    logits_BLV -= logits_BLV.max(-1, keepdims=True)
    nats_BLV = np.log(np.exp(logits_BLV).sum(-1, keepdims=True)) - logits_BLV
    nats_BL = np.take_along_axis(nats_BLV, given["next_BL"][..., None], axis=-1)[..., 0]
    sums = run(given)
    np.testing.assert_allclose(sums["loss"].total, nats_BL[given["loss_mask_BL"]].sum(), rtol=1e-5)
    assert float(sums["loss"].weight) == given["loss_mask_BL"].sum()
    values = metrics.compute_means(jax.device_get(sums))
    assert values["word_perplexity"] == pytest.approx(np.exp(sums["loss"].total / 15), rel=1e-5)
    assert values["byte_perplexity"] == pytest.approx(np.exp(sums["loss"].total / 90), rel=1e-5)
    assert {"loss", "perplexity", "accuracy", "unigram"} < set(values)
    assert not [name for name in values if name.startswith("nats")]


@pytest.mark.parametrize("across", [False, True])
def test_what_comes_later_has_exactly_no_part_in_a_prediction(across):
    for b, i in ((0, 3), (1, 6), (2, 7)):
        later_L = slopes(across, b, i)[i + 1 :]
        np.testing.assert_array_equal(later_L, 0)


@pytest.mark.parametrize(("b", "i", "first"), [(0, 8, 5), (1, 3, 0), (1, 11, 9), (1, 9, 9)])
def test_other_documents_have_exactly_no_part_in_a_prediction(b, i, first):
    own_L = slopes(False, b, i)
    np.testing.assert_array_equal(own_L[:first], 0)
    assert (own_L[first : i + 1] > 1e-6).all()
    assert (slopes(True, b, i)[: i + 1] > 1e-6).all()


def test_rows_without_a_next_token_are_refused():
    given = batch()
    del given["next_BL"]
    with pytest.raises(UserError, match=r"needs batches.name='windows' with framed=False"):
        jax.eval_shape(lambda: objective().init(jax.random.key(0), given, train=False))
