"""Which objective trains which backbone; those that do not go together say why."""

import jax
import numpy as np
import pytest

import modules
from pretrain import objectives
from pretrain.runtime.errors import UserError
from tests.support.compiler import quick_jit

B, L, V = 2, 12, 30
SPECIAL = {"cls": 0, "sep": 1, "pad": 2, "mask": 3, "unk": 4}
SIZES = dict(V=V, D=8, N=1, dropout=0.0)
ATTENTION = SIZES | dict(H=2, K=4, F=12, attention_dropout=0.0, init_scale=0.3)
BACKBONES = {
    "transformer": dict(name="transformer", L=L, **ATTENTION),
    "two_stream": dict(name="two_stream", M=4, reuse_len=6, **ATTENTION),
    "LSTM": dict(name="elmo", U=8, Z=1, inputs="words", **SIZES),
    "two LSTMs": dict(name="elmo", U=8, Z=2, inputs="words", **SIZES),
    "GRU": dict(name="recurrent", cell="gru", U=8, Z=1, **SIZES),
    "merged GRUs": dict(name="recurrent", cell="gru", U=8, Z=2, **SIZES),
    "AWD-LSTM": dict(
        name="awd_lstm", V=V, D=8, U=12, N=2, dropoute=0.0, dropouti=0.0, dropouth=0.0, wdrop=0.0
    ),
    "CNN": dict(name="text_cnn", V=V, D=8, filters=((2, 4), (3, 4)), activation="tanh"),
    "RCNN": dict(name="text_rcnn", V=V, D=8, U=4, F=8),
    "TextRNN I": dict(name="text_rnn", V=V, D=8, U=8),
    "TextRNN III": dict(name="text_rnn", V=V, D=8, U=8, sharing="shared"),
}
OBJECTIVES = {
    "mlm": dict(nsp=False),
    "clm": dict(loss_chunks=2),
    "plm": dict(predict_every=3, loss_chunks=2),
    "bilm": dict(loss_chunks=2),
}
EMPTY = {
    ("mlm", "LSTM"): "sees nothing of what comes: it needs a causal mask",
    ("mlm", "two LSTMs"): "no state sees both sides of a masked token",
    ("clm", "two LSTMs"): "the second direction .* sees what comes: set model.Z=1",
    ("plm", "transformer"): "one stream knows the token .* set model.name='two_stream'",
    ("plm", "LSTM"): "has read what came before and nothing else",
    ("plm", "two LSTMs"): "has read what came before and nothing else",
    ("bilm", "transformer"): "layers of its own for each direction.* set model.name='elmo'",
    ("bilm", "two_stream"): "layers of its own for each direction.* set model.name='elmo'",
    ("mlm", "AWD-LSTM"): "sees nothing of what comes: it needs a causal mask",
    ("plm", "AWD-LSTM"): "has read what came before and nothing else",
    ("mlm", "GRU"): "sees nothing of what comes: it needs a causal mask",
    ("clm", "merged GRUs"): "the second direction .* sees what comes: set model.Z=1",
    ("clm", "CNN"): "a CNN sees what comes",
    ("clm", "RCNN"): "an RCNN has read what comes",
    ("plm", "GRU"): "has read what came before and nothing else",
    ("plm", "merged GRUs"): "has read what came before and nothing else",
    ("plm", "CNN"): "sees the words around: it takes lengths",
    ("plm", "RCNN"): "has read the words around: it takes lengths",
    ("mlm", "TextRNN I"): "reads one way: it takes a causal mask",
    ("clm", "TextRNN III"): "reads what comes, too",
    ("plm", "TextRNN I"): "reads texts from end to end",
    ("plm", "TextRNN III"): "reads texts from end to end",
    **{
        ("bilm", name): "layers of its own for each direction.* set model.name='elmo'"
        for name in ("GRU", "merged GRUs", "AWD-LSTM", "CNN", "RCNN", "TextRNN I")
    },
}
FULL = [(o, b) for o in OBJECTIVES for b in BACKBONES if (o, b) not in EMPTY]


def build(name, backbone):
    """The objective on the backbone; one that is read from left to right says so."""
    fields = dict(BACKBONES[backbone])
    if name == "clm" and "H" in fields:
        fields["attention"] = "causal"
    return objectives.build(name, modules.build(**fields), SPECIAL, **OBJECTIVES[name])


def batch(name):
    """Arrays of the layout that an objective reads."""
    rng = np.random.default_rng(0)
    tokens_BL = rng.integers(5, V, (B, L)).astype(np.int32)
    if name == "bilm":
        each = {"tokens_BZL": tokens_BL, "next_BZL": np.roll(tokens_BL, -1, 1)}
        rows = {key: np.stack([x, x[:, ::-1]], 1) for key, x in each.items()}
        zeros_BZL = np.zeros((B, 2, L), np.int8)
        rows |= {"boundary_BZL": zeros_BZL, "loss_mask_BZL": zeros_BZL == 0}
        return rows | {"weight_B": np.ones(B, np.float32)}
    return {
        "tokens_BL": tokens_BL,
        "next_BL": np.roll(tokens_BL, -1, 1),
        "segments_BL": np.zeros((B, L), np.int32),
        "valid_BL": np.ones((B, L), bool),
        "loss_mask_BL": np.ones((B, L), bool),
        "word_starts_BL": np.ones((B, L), bool),
        "document_start_BL": np.zeros((B, L), bool),
        "weight_B": np.ones(B, np.float32),
    }


@pytest.mark.parametrize(("name", "backbone"), FULL)
def test_two_steps_on_one_batch_lower_its_loss(name, backbone):
    objective, rows = build(name, backbone), batch(name)
    rngs = {kind: jax.random.key(0) for kind in ("params", "corrupt", "dropout")}

    def loss(params, carry):
        given = {"params": params, **carry}
        metrics, _ = objective.apply(given, rows, train=True, rngs=rngs, mutable=list(carry))
        return metrics["loss"].total / metrics["loss"].weight

    @quick_jit
    def train():
        carry = dict(objective.init(rngs, rows, train=True))

        def step(params, _):
            value, grads = jax.value_and_grad(loss)(params, carry)
            return jax.tree.map(lambda w, g: w - 0.05 * g, params, grads), value

        return jax.lax.scan(step, carry.pop("params"), length=3)[1]

    losses = train()
    assert np.isfinite(losses).all()
    assert losses[0] > losses[1] > losses[2]


@pytest.mark.parametrize(("name", "backbone"), EMPTY)
def test_an_empty_cell_says_why_in_a_line(name, backbone):
    with pytest.raises(UserError, match=f"(?i){EMPTY[name, backbone]}") as error:
        build(name, backbone)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(("name", "attention"), [("clm", "bi"), ("mlm", "causal")])
def test_a_model_read_otherwise_than_it_is_trained_is_refused(name, attention):
    backbone = modules.build(**BACKBONES["transformer"], attention=attention)
    with pytest.raises(UserError, match=r"set model\.attention="):
        objectives.build(name, backbone, SPECIAL, **OBJECTIVES[name])
