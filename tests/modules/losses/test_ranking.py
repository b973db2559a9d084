"""The losses of rankings are those of lists written out, and padding is in none of them."""

import jax
import numpy as np
import pytest

from modules.losses import ranking
from tests.support.rank_losses import write_out

LENGTHS = [5, 2, 3]
THERE_BO = np.arange(5) < np.array(LENGTHS)[:, None]
LOGITS_BO = np.random.default_rng(0).normal(0, 2, (3, 5)).astype(np.float32)
RELEVANCE_BO = np.float32([[0, 1, 3, 0, 1], [0, 2, 9, 9, 9], [1, 0, 0, 9, 9]]) * THERE_BO
CONSTANTS = ranking.Constants(margin=1.5, sigma=0.7, mu=3.0)


@pytest.mark.parametrize("name", ranking.LOSSES)
def test_losses_are_those_of_lists_written_out(name):
    masked_BO = np.where(THERE_BO, LOGITS_BO, np.finfo(np.float32).min)
    ours = ranking.LOSSES[name](masked_BO, RELEVANCE_BO, THERE_BO, CONSTANTS)
    theirs = [
        write_out(name, LOGITS_BO[b, :n].astype(float), RELEVANCE_BO[b, :n], *CONSTANTS)
        for b, n in enumerate(LENGTHS)
    ]
    np.testing.assert_allclose(ours, theirs, rtol=1e-5)


@pytest.mark.parametrize(
    "name", ["squared", "logistic", "lambda_rank", "ndcg_loss2", "ndcg_loss2_plus"]
)
def test_gradients_are_finite_differences_and_zero_where_nothing_is(name):
    def loss(logits_BO):
        return ranking.LOSSES[name](logits_BO, RELEVANCE_BO, THERE_BO, CONSTANTS).sum()

    masked_BO = np.where(THERE_BO, LOGITS_BO, np.finfo(np.float32).min)
    grads_BO = jax.grad(loss)(masked_BO)
    assert not np.asarray(grads_BO)[~THERE_BO].any()
    for b, n in enumerate(LENGTHS):
        scores, step = LOGITS_BO[b, :n].astype(float), 1e-5
        for o in range(n):
            ends = [scores + sign * step * np.eye(n)[o] for sign in (1, -1)]
            up, down = (write_out(name, x, RELEVANCE_BO[b, :n], *CONSTANTS) for x in ends)
            assert float(grads_BO[b, o]) == pytest.approx((up - down) / (2 * step), abs=1e-4)
