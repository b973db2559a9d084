"""What the released BERT and GPT-2 compute, ours computes."""

import functools
import json
import pathlib
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from modules.masks import Mask, count_lengths
from tests.support import transformer_inputs as cases
from tests.support.compiler import quick_jit
from tests.support.xlnet_inputs import off

pytestmark = pytest.mark.usefixtures("exactly")

FOLDER = pathlib.Path(__file__).parents[2] / "fixtures"

CAUSAL = Mask(is_causal=True)


def load(name, prefix=""):
    """(flags, weights, inputs, outputs, gradients)."""
    with np.load(FOLDER / f"{name}.npz") as file:
        parts = ("w/" + prefix, "in/", "out/", "out/grad/" + prefix)
        groups = [
            {k.removeprefix(part): file[k] for k in file.files if k.startswith(part)}
            for part in parts
        ]
        return json.loads(str(file["cfg"])), *groups


# --- BERT ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def bert():
    flags, weights, inputs, golden, slopes = load("bert/bert_tiny")
    D, H = flags["hidden_size"], flags["num_attention_heads"]
    model = cases.tiny(
        V=flags["vocab_size"],
        D=D,
        H=H,
        K=D // H,
        N=flags["num_hidden_layers"],
        F=flags["intermediate_size"],
        L=flags["max_position_embeddings"],
        **cases.BERT,
    )
    lengths_B = count_lengths(inputs["input_mask"] == 1)
    given = dict(segments_BL=inputs["segment_ids"], mask=Mask(lengths_B=lengths_B))
    given["tokens_BL"] = inputs["input_ids"]
    slots_BP = np.pad(inputs["masked_lm_positions"], ((0, 0), (1, 0)))  # the first position too
    return SimpleNamespace(
        model=model,
        weights=weights,
        given=given,
        inputs=inputs,
        golden=golden,
        slopes=slopes,
        slots_BP=slots_BP,
    )


def test_bert_s_embedding_and_every_layer_are_the_original_s(bert):
    params, given = cases.bert(bert.weights, bert.model.H), bert.given
    apply = functools.partial(bert.model.apply, method="layer_states")
    h_NBLD = quick_jit(lambda p: apply({"params": p}, **given).h)(params)
    for h_BLD, name in zip(
        h_NBLD, ["embedding_output", "layer_0", "layer_1", "layer_2"], strict=True
    ):
        assert off(h_BLD, bert.golden[name]) < 2e-6
    assert off(h_NBLD[-1], bert.golden["sequence_output"]) < 2e-6


def bert_outputs(bert, slots, params, w_CD, bias_C):
    """The total loss, and all that the original has computed on the way."""
    bound, places_BP1 = bert.model.bind({"params": params}), bert.slots_BP[..., None]
    h_BPD = bound(**bert.given, slots_BP=bert.slots_BP if slots else None, train=False).h
    h_BPD = h_BPD if slots else jnp.take_along_axis(h_BPD, places_BP1, 1)
    ids_BP, weights_BP = (bert.inputs[f"masked_lm_{name}"] for name in ("ids", "weights"))
    args = (h_BPD[:, 1:], ids_BP, weights_BP)
    head = functools.partial(cases.read_by_head, bert.model, params, **cases.BERT_HEAD)
    total, weight = jax.tree.leaves(head("cross_entropy", *args)["loss"])
    pooled_BD = bound.pool(h_BPD[:, 0])
    log_BC = jax.nn.log_softmax(pooled_BD @ w_CD.T + bias_C)
    nsp_loss = -jnp.take_along_axis(log_BC, bert.inputs["next_sentence_labels"], 1).mean()
    mlm_loss = total / (weight + 1e-5)
    log_BPV = jax.nn.log_softmax(head("logits", h_BPD[:, 1:]))
    out = dict(sequence_output=h_BPD, pooled_output=pooled_BD, mlm_loss=mlm_loss)
    out |= dict(mlm_log_probs=log_BPV.reshape(-1, bert.model.V))
    return mlm_loss + nsp_loss, out | dict(nsp_loss=nsp_loss, nsp_log_probs=log_BC)


@pytest.mark.parametrize("slots", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_bert_s_heads_losses_and_gradients_are_the_original_s(bert, slots):
    heads = [f"cls/seq_relationship/output_{name}" for name in ("weights", "bias")]
    args = (cases.bert(bert.weights, bert.model.H), *(bert.weights[name] for name in heads))
    outputs = functools.partial(bert_outputs, bert, slots)
    run = quick_jit(jax.value_and_grad(outputs, (0, 1, 2), has_aux=True))
    (total, out), (slopes, *head_slopes) = run(*args)
    assert off(total, bert.golden["total_loss"]) < 2e-6
    read_BPD = np.take_along_axis(bert.golden["sequence_output"], bert.slots_BP[..., None], 1)
    for name, value in out.items():
        golden = read_BPD if name == "sequence_output" else bert.golden[name]
        assert off(value, golden) < 2e-6, name
    assert cases.slopes_off(slopes, cases.bert(bert.slopes, bert.model.H)) < 1e-5
    for name, slope in zip(heads, head_slopes, strict=True):
        assert off(slope, bert.slopes[name]) < 1e-5


# --- GPT-2 -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def gpt2():
    flags, weights, inputs, golden, slopes = load("gpt2/gpt2_tiny", "model/")
    model = cases.golden_gpt2(flags)
    return model, weights, inputs["input_ids"], golden, slopes


def test_gpt2_s_logits_loss_and_gradients_are_the_original_s(gpt2):
    model, weights, tokens_BL, golden, golden_slopes = gpt2
    ones_BL = jnp.ones(tokens_BL[:, 1:].shape)

    def loss(params):
        h_BLD = model.apply({"params": params}, tokens_BL, mask=CAUSAL, train=False).h
        head = functools.partial(cases.read_by_head, model, params)
        args = (h_BLD[:, :-1], tokens_BL[:, 1:], ones_BL)
        total, weight = jax.tree.leaves(head("cross_entropy", *args)["loss"])
        return total / weight, head("logits", h_BLD)

    run = quick_jit(jax.value_and_grad(loss, has_aux=True))
    (value, logits), slopes = run(cases.gpt(weights, model.H))
    assert off(logits, golden["logits"]) < 2e-6
    assert off(value, golden["loss"]) < 2e-6
    assert cases.slopes_off(slopes, cases.gpt(golden_slopes, model.H)) < 1e-5


def test_gpt2_s_keys_values_and_continuation_are_the_original_s(gpt2):
    model, weights, tokens_BL, golden, _ = gpt2
    params = {"params": jax.tree.map(jnp.asarray, cases.gpt(weights, model.H))}
    given = dict(mask=CAUSAL, train=False)
    extend = quick_jit(lambda x, memory: model.apply(params, x, memory=memory, **given))
    B, L = tokens_BL.shape
    _, cache = extend(tokens_BL, model.initial_memory(B, L))
    both = np.stack([cache.k_NBJHK, cache.v_NBJHK])
    assert off(np.einsum("cNBJHK->BNcHJK", both), golden["present"]) < 2e-6
    past = L - golden["logits_with_past"].shape[1]
    _, cache = extend(tokens_BL[:, :past], model.initial_memory(B, L))
    h_BLD, cache = extend(tokens_BL[:, past:], cache)
    logits = cases.read_by_head(model, params["params"], "logits", h_BLD)
    assert off(logits, golden["logits_with_past"]) < 2e-6
    assert off(logits, golden["logits"][:, past:]) < 2e-6
    assert (cache.length_B == L).all()
