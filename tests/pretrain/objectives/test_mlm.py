"""What is hidden, what is predicted of it, and the loss of both."""

import functools
import json
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

import modules
from modules.heads import language_model
from pretrain.objectives import mlm
from pretrain.runtime.errors import UserError
from pretrain.training import train_state
from tests.support import arrays
from tests.support import transformer_inputs as cases
from tests.support.compiler import quick_jit

B, L, V = 600, 128, 997
SPECIAL = {"pad": 0, "unk": 1, "cls": 2, "sep": 3, "mask": 4, "eod": 3}
GOLDEN = pathlib.Path(__file__).parents[2] / "fixtures" / "bert" / "bert_tiny.npz"


class Spy(nn.Module):
    """In place of the backbone, for tests that only look at what is hidden."""

    V: int = V


@functools.cache
def rows():
    """Pairs of all lengths: <cls> A <sep> B <sep>, then padding; words of 1 to 4 pieces."""
    rng = np.random.default_rng(0)
    tokens_BL = rng.integers(5, V, (B, L)).astype(np.int32)
    tokens_BL[rng.random((B, L)) < 0.01] = SPECIAL["unk"]
    end_B1 = np.where(rng.random((B, 1)) < 0.2, rng.integers(8, L, (B, 1)), L)
    place_L = np.arange(L)
    special_BL = (place_L == 0) | (place_L == end_B1 // 2) | (place_L == end_B1 - 1)
    tokens_BL = np.where(special_BL, SPECIAL["sep"], tokens_BL)
    tokens_BL[:, 0] = SPECIAL["cls"]
    valid_BL = place_L < end_B1
    starts_BL = special_BL | (rng.random((B, L)) < 0.6)
    starts_BL[:, 1:] |= special_BL[:, :-1]
    return {
        "tokens_BL": np.where(valid_BL, tokens_BL, SPECIAL["pad"]),
        "valid_BL": valid_BL,
        "word_starts_BL": starts_BL,
    }


@functools.cache
def program(**fields):
    objective = mlm.Objective(Spy(), None, special=SPECIAL, **fields)
    corrupt = functools.partial(objective.apply, {}, method="corrupt")
    return quick_jit(lambda key, batch: corrupt(batch, rngs={"corrupt": key}))


@functools.cache
def hidden(seed=0, **fields):
    """(rows with something hidden, what is predicted) for one draw."""
    return jax.device_get(program(**fields)(jax.random.key(seed), rows()))


KINDS = {
    "tokens": dict(),
    "words": dict(whole_word_mask=True),
    "n-grams of words": dict(whole_word_mask=True, max_gram=3),
    "spans": dict(whole_word_mask=True, max_gram=10, geometric=0.2),
}


@pytest.mark.parametrize("kind", KINDS)
def test_fifteen_percent_are_predicted_and_never_a_special_token(kind):
    _, targets_BL = hidden(**KINDS[kind])
    tokens_BL, valid_BL = rows()["tokens_BL"], rows()["valid_BL"]
    assert abs(targets_BL.sum() / valid_BL.sum() - 0.15) < 0.003
    assert not targets_BL[~valid_BL].any()
    assert not np.isin(tokens_BL[targets_BL], [0, 2, 3, 4]).any()
    assert (tokens_BL[targets_BL] == SPECIAL["unk"]).any()


def test_every_row_has_as_many_as_the_original_gives_it():
    _, targets_BL = hidden()
    size_B = rows()["valid_BL"].sum(1)
    expected_B = [min(20, max(1, round(int(size) * 0.15))) for size in size_B]
    np.testing.assert_array_equal(targets_BL.sum(1), expected_B)


@pytest.mark.parametrize("kind", KINDS)
def test_of_those_80_percent_are_masked_10_random_and_10_left(kind):
    hidden_BL, targets_BL = hidden(**KINDS[kind])
    tokens_BL = rows()["tokens_BL"]
    np.testing.assert_array_equal(hidden_BL[~targets_BL], tokens_BL[~targets_BL])
    now, was = hidden_BL[targets_BL], tokens_BL[targets_BL]
    shares = [(now == SPECIAL["mask"]).mean(), (now == was).mean()]
    shares.append(1 - sum(shares))
    np.testing.assert_allclose(shares, [0.8, 0.1, 0.1], atol=0.01)
    drawn = now[(now != SPECIAL["mask"]) & (now != was)]
    assert drawn.min() < 20
    assert drawn.max() > V - 20


@pytest.mark.parametrize("kind", ["words", "n-grams of words", "spans"])
def test_whole_words_are_predicted_or_none_of_their_pieces(kind):
    _, targets_BL = hidden(**KINDS[kind])
    word_BL = np.cumsum(rows()["word_starts_BL"], axis=1)
    for targets_L, word_L, valid_L in zip(targets_BL, word_BL, rows()["valid_BL"], strict=True):
        inside_L = valid_L[1:] & (word_L[1:] == word_L[:-1])
        assert (targets_L[1:] == targets_L[:-1])[inside_L].all()
    _, single_BL = hidden()
    cut = [x[:, 1:] != x[:, :-1] for x in (word_BL, single_BL)]
    assert (~cut[0] & cut[1]).any()  # as single tokens are not


@pytest.mark.parametrize(
    ("fields", "least", "most"),
    [
        (dict(), 1, 1.25),  # neighbours by chance
        (dict(max_gram=3), 1.6, 2.3),  # 18 / 11, and some runs touch
        (dict(max_gram=10, geometric=0.2), 3.5, 5.2),  # 3.8 (SpanBERT, 3.1), and some runs touch
    ],
)
def test_longer_runs_are_picked_together_when_asked(fields, least, most):
    _, targets_BL = hidden(**fields)  # rows begin with what is not picked
    runs = np.diff(targets_BL.ravel().astype(int)) == 1
    assert least < targets_BL.sum() / runs.sum() < most


def test_masks_are_drawn_anew_each_time_and_the_same_for_the_same_key():
    one, again, other = hidden(seed=1), hidden.__wrapped__(seed=1), hidden(seed=2)
    np.testing.assert_array_equal(one[0], again[0])
    same = (one[1] & other[1]).sum() / one[1].sum()
    assert 0.1 < same < 0.2


# --- the loss --------------------------------------------------------------------------------


def golden():
    with np.load(GOLDEN) as file:
        cfg, arrays = json.loads(str(file["cfg"])), {k: file[k] for k in file.files}
    part = lambda name: {k.removeprefix(name): x for k, x in arrays.items() if k.startswith(name)}  # noqa: E731
    return cfg, part("w/"), part("in/"), part("out/")


class Given(mlm.Objective):
    """The objective with the original's own masks."""

    def corrupt(self, batch):
        return batch["hidden_BL"], batch["targets_BL"]


def test_the_loss_is_the_original_s_of_both_tasks():
    cfg, weights, given, out = golden()
    slots_BP, real_BP = given["masked_lm_positions"], given["masked_lm_weights"] > 0
    tokens_BL, targets_BL = given["input_ids"].copy(), np.zeros(given["input_ids"].shape, bool)
    for b, p in np.argwhere(real_BP):
        tokens_BL[b, slots_BP[b, p]] = given["masked_lm_ids"][b, p]
        targets_BL[b, slots_BP[b, p]] = True
    batch = {
        "hidden_BL": given["input_ids"],
        "targets_BL": targets_BL,
        "tokens_BL": tokens_BL,
        "segments_BL": given["segment_ids"],
        "valid_BL": given["input_mask"] > 0,
        "weight_B": np.ones(len(tokens_BL), np.float32),
        "consecutive_B": 1 - given["next_sentence_labels"][:, 0],
    }
    backbone = cases.tiny(
        V=cfg["vocab_size"], D=32, H=4, N=3, F=64, L=cfg["max_position_embeddings"], **cases.BERT
    )
    whole = cases.bert(weights, backbone.H)
    params = {
        "backbone": whole,
        "head": whole,  # which are beside each other there
        "next_DC": weights["cls/seq_relationship/output_weights"].T,
        "next_bias_C": weights["cls/seq_relationship/output_bias"],
    }
    head = language_model.build(backbone, **cases.BERT_HEAD)
    objective = Given(backbone, head, max_predictions=slots_BP.shape[1], special=SPECIAL)
    with jax.default_matmul_precision("highest"):
        sums = quick_jit(lambda p: objective.apply({"params": p}, batch, train=False))(params)
    mean = {name: x.total / x.weight for name, x in sums.items() if x.unit != "unigram"}
    assert mean["loss"] == pytest.approx(out["mlm_loss"], rel=5e-6)  # theirs adds 1e-5 to a weight
    assert mean["nsp_loss"] == pytest.approx(out["nsp_loss"], rel=2e-6)
    total = train_state.total_loss(sums) / sums["loss"].weight
    assert total == pytest.approx(out["total_loss"], rel=5e-6)
    hits = out["nsp_log_probs"].argmax(1) == given["next_sentence_labels"][:, 0]
    assert mean["nsp_accuracy"] == pytest.approx(hits.mean())


def tiny(pooler=True, **fields):
    sizes = dict(V=V, D=8, H=2, K=4, N=1, F=8, L=L, S=2, dropout=0.0, attention_dropout=0.0)
    backbone = modules.build("transformer", pooler=pooler, **sizes)
    head = language_model.build(backbone, transform=True, bias=True)
    return mlm.Objective(backbone, head, special=SPECIAL, **fields)


def few(count=16, **more):
    batch = {name: x[:count] for name, x in rows().items()}
    batch["segments_BL"] = np.zeros_like(batch["tokens_BL"])
    ones = np.ones(count, np.float32)
    return batch | {"weight_B": ones, "consecutive_B": np.arange(count) % 2} | more


def test_rows_of_weight_zero_count_for_neither_loss():
    objective = tiny()
    weight_B = np.array([1] * 8 + [0] * 8, np.float32)
    rngs = {"corrupt": jax.random.key(3)}
    init = functools.partial(objective.init, {"params": jax.random.key(0), **rngs})
    params = arrays.draw_variables(init, few(), train=False, scale=0.3)
    apply = quick_jit(lambda p, batch: objective.apply(p, batch, train=False, rngs=rngs))
    run = functools.partial(apply, params)
    sums = run(few(weight_B=weight_B))
    other = few(weight_B=weight_B)
    other["tokens_BL"] = np.where(weight_B[:, None] > 0, other["tokens_BL"], 9)
    for name, again in run(other).items():
        np.testing.assert_allclose(again.total, sums[name].total, rtol=1e-5, err_msg=name)
        np.testing.assert_array_equal(again.weight, sums[name].weight)
    assert float(sums["nsp_loss"].weight) == 8


def shapes_of(objective, *left_out):
    batch = {name: x for name, x in few().items() if name not in left_out}
    rngs = {"params": jax.random.key(0), "corrupt": jax.random.key(1)}
    return jax.eval_shape(lambda: objective.init(rngs, batch, train=False))["params"]


def test_without_next_sentence_no_pairs_are_needed_and_no_head_is_made():
    made = shapes_of(tiny(nsp=False), "consecutive_B", "segments_BL")
    assert set(made) == {"backbone", "head"}


@pytest.mark.parametrize(
    ("objective", "left_out", "message"),
    [
        (tiny(), "consecutive_B", r"nsp=True needs batches.name='pairs'"),
        (tiny(pooler=False), "", r"needs model\.pooler=True"),
        (tiny(nsp=False).clone(special={"eod": 5}), "", r"needs <mask>, but .* are <eod>:"),
    ],
)
def test_what_an_objective_lacks_is_named(objective, left_out, message):
    with pytest.raises(UserError, match=message):
        shapes_of(objective, left_out)


def test_only_what_is_predicted_meets_the_vocabulary():
    rngs = {"params": jax.random.key(0), "corrupt": jax.random.key(1)}
    run = jax.jit(lambda: tiny().init_with_output(rngs, few(), train=False)[0])
    text = run.lower().as_text()
    assert f"16x20x{V}x" in text
    assert f"16x{L}x{V}x" not in text


def test_more_predictions_than_places_are_cut_at_the_most_allowed():
    _, targets_BL = hidden(mask_prob=0.5, max_predictions=10)
    assert targets_BL.sum(1).max() == 10
    assert jnp.asarray(targets_BL).sum(1).min() >= 4
