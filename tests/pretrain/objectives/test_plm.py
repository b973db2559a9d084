"""Who is predicted, from what, and what outlives a window."""

import jax
import numpy as np
import pytest

from pretrain.objectives import corruption
from pretrain.runtime.errors import UserError
from tests.support.recording_backbone import (
    CHUNKS,
    REUSE,
    B,
    L,
    M,
    P,
    Spy,
    V,
    draw,
    listen,
    spied,
)

# --- who is predicted ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fields", [dict(), dict(spans=False), dict(faithful=True), dict(perm_size=2)]
)
def test_one_in_so_many_is_predicted_and_never_a_special_token(fields):
    for seed in range(2):
        batch = draw(seed)
        sums, asked, _ = listen(spied(**fields), batch, seed=seed)
        assert asked["slots_BP"].shape == (B, P)
        assert all(len(set(row)) == P for row in asked["slots_BP"].tolist())
        assert ((asked["slots_BP"] < REUSE).sum(1) == P - P // 2).all()
        assert (asked["ids_BP"] > 4).all()
        own = np.take_along_axis(batch["tokens_BL"], asked["slots_BP"], 1)
        np.testing.assert_array_equal(asked["ids_BP"], own)
        assert sums["loss"].weight == B * P


def test_where_too_few_can_be_predicted_the_rest_weighs_nothing():
    batch = draw()
    batch["tokens_BL"][1, 1:] = 4
    sums, asked, _ = listen(spied(), batch)
    assert asked["weights_BP"].sum(1).tolist() == [P, 1, P]
    assert asked["ids_BP"][asked["weights_BP"] > 0].min() > 4
    assert sums["loss"].weight == 2 * P + 1


def test_a_query_sees_what_the_content_at_its_place_sees_and_not_itself():
    _, asked, _ = listen(spied(), draw())
    rows = np.take_along_axis(asked["content"], asked["slots_BP"][..., None], 1)
    np.testing.assert_array_equal(asked["query"], rows)
    assert not np.take_along_axis(asked["query"], M + asked["slots_BP"][..., None], 2).any()


def test_the_reused_part_never_sees_the_rest_which_sees_all_of_it():
    _, asked, _ = listen(spied(), draw())
    assert not asked["content"][:, :REUSE, M + REUSE :].any()
    assert asked["content"][:, REUSE:, M : M + REUSE].all()


def test_context_sees_context_and_orders_keep_to_their_chunks():
    batch = draw()
    _, asked, _ = listen(spied(perm_size=2), batch)
    for b in range(B):
        seen = asked["content"][b, REUSE:, M + REUSE :]
        hidden_L = np.isin(np.arange(L), asked["slots_BP"][b]) | (batch["tokens_BL"][b] < 5)
        context_R = ~hidden_L[REUSE:]
        np.testing.assert_array_equal(seen[context_R], np.tile(context_R, (context_R.sum(), 1)))
        for i, j in np.argwhere(seen[:, ~context_R][~context_R]):
            assert np.flatnonzero(~context_R)[j] // 2 <= np.flatnonzero(~context_R)[i] // 2


def test_words_of_rows_read_backwards_are_picked_whole_in_reading_order(monkeypatch):
    monkeypatch.setattr(
        corruption, "sample_positions", lambda rng, eligible_L, goal: eligible_L & False
    )
    batch = draw()
    batch["tokens_BL"][:] = 9
    reading = np.arange(L) % 3 == 0  # words of three pieces, one of which lies across the parts
    batch["word_starts_BL"] = np.stack([reading, reading[::-1], reading[::-1]])
    words = 0
    for seed in range(30):
        _, asked, _ = listen(spied(predict_every=2), batch, seed=seed)
        picked = np.zeros((B, L), bool)
        for b, (row, real) in enumerate(zip(asked["slots_BP"], asked["weights_BP"], strict=True)):
            picked[b, row[real > 0]] = True
        # the goal, 6 in each part, is two words: nothing is cut
        by_word = picked.reshape(B, L // 3, 3)
        np.testing.assert_array_equal(by_word.any(-1), by_word.all(-1))
        words += by_word[1:].all(-1).sum()
    assert words > 20


def test_evaluation_counts_what_was_predicted():
    batch = draw()
    batch["weight_B"] = np.array([1, 0, 1], np.float32)
    sums, asked, _ = listen(spied(), batch, train=False)
    counts_V, weight = jax.tree.leaves(sums["unigram"])
    expected_V = np.bincount(asked["ids_BP"][[0, 2]].ravel(), minlength=V)
    np.testing.assert_array_equal(counts_V, expected_V)
    assert weight == 2 * P
    assert "unigram" not in listen(spied(), batch)[0]


def test_the_head_gets_as_many_chunks_as_the_recipe_says():
    assert listen(spied(), draw())[1]["chunks"] == CHUNKS


def test_another_seed_predicts_other_places():
    one, other = (listen(spied(), draw(), seed=seed)[1]["slots_BP"] for seed in (1, 2))
    assert np.any(one != other)


# --- what is refused -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reuse_len", "perm_size", "message"),
    [(0, 0, "reuse_len=0"), (L, 0, f"reuse_len={L}"), (REUSE, 3, r"perm_size=3 must divide")],
)
def test_windows_that_cannot_be_cut_are_refused(reuse_len, perm_size, message):
    objective = spied(perm_size=perm_size).clone(backbone=Spy(reuse_len=reuse_len))
    with pytest.raises(UserError, match=message):
        listen(objective, draw())


def test_a_window_too_short_to_predict_from_is_refused():
    with pytest.raises(UserError, match=f"predict_every=13 leaves nothing to predict in L={L}"):
        listen(spied(predict_every=13), draw())
