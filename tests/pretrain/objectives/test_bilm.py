"""What is guessed, what a row remembers, what the numbers mean."""

import functools

import jax
import numpy as np
import pytest

import modules
from pretrain import objectives
from pretrain.runtime.errors import UserError
from pretrain.training import metrics
from tests.support.arrays import draw_variables
from tests.support.compiler import quick_jit

B, L, V, TYPES, W = 4, 6, 30, 40, 8
SPECIAL = {"bos": 0, "eos": 1, "unk": 2, "eod": 1}
MODEL = dict(
    name="elmo", V=V, D=6, U=8, N=2, E=3, filters=((1, 4), (2, 5)), highways=1, W=W, dropout=0.0
)


HEAD = dict(tied=False, bias=True)


def build(model=None, **fields):
    backbone = modules.build(**MODEL | (model or {}))
    return objectives.build("bilm", backbone, SPECIAL, head=HEAD, **fields)


def draw(seed: int, length: int = L) -> dict[str, np.ndarray]:
    """A batch of words, of which no two are spelled alike."""
    rng = np.random.default_rng(seed)
    tokens_BZL, next_BZL = rng.integers(3, TYPES, (2, B, 2, length)).astype(np.int32)
    chars_TW = np.random.default_rng(99).integers(0, 261, (TYPES, W)).astype(np.uint16)
    return {
        "tokens_BZL": tokens_BZL,
        "next_BZL": next_BZL,
        "chars_BZLW": chars_TW[tokens_BZL],
        "boundary_BZL": np.zeros((B, 2, length), np.int8),
        "loss_mask_BZL": np.ones((B, 2, length), bool),
        "weight_B": np.ones(B, np.float32),
    }


@functools.cache
def variables(objective):
    """Weights large enough to matter, and an empty memory."""
    rngs = dict.fromkeys(("params", "dropout", "corrupt"), jax.random.key(0))
    return draw_variables(objective.init, rngs, draw(0), train=True, scale=0.5, seed=1)


@functools.cache
def program(objective, train: bool):
    rngs = {"corrupt": jax.random.key(2), "dropout": jax.random.key(3)}
    return quick_jit(
        lambda given, batch: objective.apply(
            given, batch, train=train, rngs=rngs, mutable=["state"]
        )
    )


def trial(objective, given, batch, train=False):
    """(sums, what is remembered) of a batch."""
    return jax.device_get(program(objective, train)(given, batch))


def halves(batch, at: int):
    """The same text as two batches, one after the other."""
    names = [name for name in batch if "L" in name.split("_")[-1]]
    early = {name: batch[name][:, :, :at] for name in names}
    late = {name: batch[name][:, :, at:] for name in names}
    return batch | early, batch | late


def total(sums) -> float:
    return float(sums["loss"].total)


def test_two_batches_in_turn_are_one_long_batch():
    objective, whole = build(reset="never"), draw(1, 2 * L)
    given = variables(objective)
    early, late = halves(whole, L)
    first, kept = trial(objective, given, early)
    second, end = trial(objective, {**given, **kept}, late)
    long, long_end = trial(objective, given, whole)
    np.testing.assert_allclose(total(first) + total(second), total(long), rtol=1e-6)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), end, long_end)


def test_without_state_no_batch_depends_on_those_before_it():
    objective = build(stateful=False)
    given = variables(objective)
    assert set(given) == {"params"}
    sums, kept = trial(objective, given, draw(1))
    assert not kept
    assert total(sums) == total(trial(objective, given, draw(1))[0])
    remembering = build(reset="never")
    one, kept = trial(remembering, variables(remembering), draw(1))
    other, _ = trial(remembering, {**variables(remembering), **kept}, draw(1))
    assert total(one) == pytest.approx(total(sums), rel=1e-6)
    assert total(other) != total(one)


@pytest.mark.parametrize(
    ("reset", "forgets"), [("never", set()), ("document", {2}), ("sentence", {1, 2})]
)
@pytest.mark.parametrize("opens", [1, 2])
def test_a_row_forgets_where_the_recipe_says_so(reset, forgets, opens):
    objective = build(reset=reset)
    given = variables(objective)
    batch = draw(1)
    batch["boundary_BZL"][:, :, 0] = opens
    _, kept = trial(objective, given, draw(2))
    after, _ = trial(objective, {**given, **kept}, batch)
    afresh, _ = trial(objective, given, batch)
    assert (total(after) == total(afresh)) == (opens in forgets)


def test_unknown_words_are_guessed_as_unknown_and_read_as_they_are_spelled():
    objective, batch = build(), draw(1)
    given, unknown = variables(objective), batch["next_BZL"] >= V
    assert 0 < unknown.mean() < 1
    sums, _ = trial(objective, given, batch)
    assert jax.tree.leaves(sums["unknown"]) == [unknown.sum(), unknown.size]
    said = batch | {"next_BZL": np.where(unknown, SPECIAL["unk"], batch["next_BZL"])}
    assert total(trial(objective, given, said)[0]) == total(sums)
    read = np.where(batch["tokens_BZL"] >= V, SPECIAL["unk"], batch["tokens_BZL"])
    assert total(trial(objective, given, batch | {"tokens_BZL": read})[0]) == total(sums)
    chars_BZLW = batch["chars_BZLW"].copy()
    chars_BZLW[batch["tokens_BZL"] >= V, 0] += 1
    assert total(trial(objective, given, batch | {"chars_BZLW": chars_BZLW})[0]) != total(sums)


def test_of_words_alone_a_model_reads_unknown_ones_as_one():
    objective, batch = build({"inputs": "words"}), draw(1)
    given = variables(objective)
    read = np.where(batch["tokens_BZL"] >= V, SPECIAL["unk"], batch["tokens_BZL"])
    one = total(trial(objective, given, batch)[0])
    assert one == total(trial(objective, given, batch | {"tokens_BZL": read})[0])
    assert one != total(trial(objective, given, batch | {"tokens_BZL": read * 0 + 3})[0])


def test_the_loss_is_the_mean_of_both_directions():
    objective, batch = build(), draw(1)
    batch["loss_mask_BZL"][0, :, 3:] = False
    batch["weight_B"][1] = 0
    given = variables(objective)
    sums, _ = trial(objective, given, batch)
    shown = metrics.compute_means(sums)
    both = shown["forward_perplexity"] * shown["backward_perplexity"]
    assert shown["perplexity"] == pytest.approx(both**0.5, rel=1e-5)
    assert sums["loss"].weight == 2 * (2 * L + 3)
    for z, name in enumerate(("forward_perplexity", "backward_perplexity")):
        alone = batch | {"loss_mask_BZL": batch["loss_mask_BZL"] & (np.arange(2)[:, None] == z)}
        assert total(trial(objective, given, alone)[0]) == pytest.approx(sums[name].total, rel=1e-6)


def test_from_left_to_right_alone_the_rest_of_the_batch_is_not_read():
    objective, batch = build({"Z": 1}), draw(1)
    given = variables(objective)
    sums, kept = trial(objective, given, batch)
    assert "backward_perplexity" not in sums
    other = draw(2)
    for name in ("tokens_BZL", "chars_BZLW", "next_BZL"):
        batch[name][:, 1] = other[name][:, 1]
    again, also = trial(objective, given, batch)
    assert total(again) == total(sums)
    jax.tree.map(np.testing.assert_array_equal, kept, also)


def test_a_sample_of_words_serves_training_alone():
    drawn, full = build(samples=12), build()
    given, batch = variables(full), draw(1)
    assert total(trial(drawn, given, batch)[0]) == total(trial(full, given, batch)[0])
    approximate, exact = (
        total(trial(drawn, given, batch, train=True)[0]),
        total(trial(full, given, batch)[0]),
    )
    assert exact != approximate == pytest.approx(exact, rel=0.5)


@pytest.mark.parametrize(
    ("model", "fields", "left_out", "named"),
    [
        ({}, {"reset": "always"}, "", "reset='always' is none of never, document, sentence"),
        ({}, {"samples": V}, "", "samples=30 of model.V=30"),
        ({}, {}, "boundary_BZL", "batches.name='bidirectional'"),
        ({}, {}, "chars_BZLW", "batches.characters"),
    ],
)
def test_a_mistake_is_named(model, fields, left_out, named):
    batch = {name: x for name, x in draw(0).items() if name != left_out}
    rngs = dict.fromkeys(("params", "dropout", "corrupt"), jax.random.key(0))
    with pytest.raises(UserError, match=named):
        build(model, **fields).init(rngs, batch, train=True)


def test_sampled_words_take_fewer_operations():
    assert build(samples=12).flops(B, L) < build().flops(B, L)
