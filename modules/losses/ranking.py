"""Losses of rankings: the candidates of a list are to stand in the order of their relevance.

The pointwise one follows Cossock & Zhang 2006, listwise ones Cao et al. 2007, pairwise ones Burges
et al. 2005 (RankNet) and Herbrich et al. 2000.  Those that weigh a pair by what its order is worth
in NDCG are of Burges 2010 (LambdaRank) and Wang et al. 2018 (LambdaLoss, 10.1145/3269206.3271784).

Each takes scores, relevances and what is there, [B, O], and `Constants`; it computes the loss of
each list, [B] float32: `squared` and `hinge` in units of the scores, those of NDCG weighed by it,
the others in nats.  A list without a pair in order has none, but by `squared`, which looks at each
candidate alone, and by `softmax` and `listnet`, which look at all at once.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from modules.kernels.softmax import softmax as masked_softmax


class Constants(NamedTuple):
    """Constants of losses.

    Attributes:
        margin: of the hinge.
        sigma: slope of the probability that one candidate leads another.
        mu: weight of NDCG-Loss2 beside LambdaRank's, in their sum.
    """

    margin: float = 1.0
    sigma: float = 1.0
    mu: float = 10.0


def squared(logits_BO, relevance_BO, there_BO, constants: Constants):
    """Computes how far scores are from relevances, squared, the mean over candidates."""
    del constants
    # Before the square: what is not there has the lowest score, whose square is no number.
    off_BO = jnp.where(there_BO, logits_BO - relevance_BO, 0)
    return _mean(off_BO**2, there_BO, axis=1)


def softmax(logits_BO, relevance_BO, there_BO, constants: Constants):
    """Computes the cross entropy with the shares of the relevance."""
    del constants
    # The floor is for filler rows, which are of no relevance and weigh nothing.
    share_BO = relevance_BO / jnp.maximum(relevance_BO.sum(1, keepdims=True), 1e-9)
    return -(share_BO * jnp.where(there_BO, jax.nn.log_softmax(logits_BO), 0)).sum(1)


def listnet(logits_BO, relevance_BO, there_BO, constants: Constants):
    """Computes the cross entropy of which candidate is first (Cao et al. 2007)."""
    del constants
    share_BO = masked_softmax(relevance_BO, there_BO)
    return -(share_BO * jnp.where(there_BO, jax.nn.log_softmax(logits_BO), 0)).sum(1)


def hinge(logits_BO, relevance_BO, there_BO, constants: Constants):
    """Computes by how much the more relevant misses the margin, the mean over pairs."""
    lead_BOO, pairs_BOO = pairwise_margins(logits_BO, relevance_BO, there_BO)
    return _mean(jax.nn.relu(constants.margin - lead_BOO), pairs_BOO)


def logistic(logits_BO, relevance_BO, there_BO, constants: Constants):
    """Computes RankNet's loss, the mean over pairs: -log P of the more relevant leading."""
    lead_BOO, pairs_BOO = pairwise_margins(logits_BO, relevance_BO, there_BO)
    return _mean(jax.nn.softplus(-constants.sigma * lead_BOO), pairs_BOO)


def lambda_rank(logits_BO, relevance_BO, there_BO, constants: Constants):
    """Computes LambdaRank's loss: a pair weighs what NDCG changes by if the two are swapped."""
    weight_BOO = _swap_discounts(_find_ranks(logits_BO))
    return _sum_of_gains(logits_BO, relevance_BO, there_BO, constants, weight_BOO)


def ndcg_loss2(logits_BO, relevance_BO, there_BO, constants: Constants):
    """Computes NDCG-Loss2, whose weights bound the cost in NDCG (Wang et al. 2018, eq. 13)."""
    weight_BOO = _distance_discounts(_find_ranks(logits_BO))
    return _sum_of_gains(logits_BO, relevance_BO, there_BO, constants, weight_BOO)


def ndcg_loss2_plus(logits_BO, relevance_BO, there_BO, constants: Constants):
    """Computes NDCG-Loss2++: LambdaRank's weights, and mu times those of NDCG-Loss2."""
    rank_BO = _find_ranks(logits_BO)
    weight_BOO = _swap_discounts(rank_BO) + constants.mu * _distance_discounts(rank_BO)
    return _sum_of_gains(logits_BO, relevance_BO, there_BO, constants, weight_BOO)


def pairwise_margins(logits_BO, relevance_BO, there_BO):
    """Computes by how much each leads each other, and which pairs count: the first is better."""
    logits_BO = jnp.where(there_BO, logits_BO, 0)
    pairs_BOO = relevance_BO[:, :, None] > relevance_BO[:, None]
    pairs_BOO &= there_BO[:, :, None] & there_BO[:, None]
    return logits_BO[:, :, None] - logits_BO[:, None], pairs_BOO


def _mean(x, weights, axis=(1, 2)):
    return (x * weights).sum(axis) / jnp.maximum(weights.sum(axis), 1)


def _find_ranks(logits_BO):
    # From 1.  What is not there has the lowest score, and so ranks behind all that is.
    return 1.0 + jnp.argsort(jnp.argsort(-logits_BO, axis=1), axis=1)


def _swap_discounts(rank_BO):
    discount_BO = 1 / jnp.log2(1 + rank_BO)
    return jnp.abs(discount_BO[:, :, None] - discount_BO[:, None])


def _distance_discounts(rank_BO):
    # The floor is for a candidate and itself, which are no pair.
    distance_BOO = jnp.maximum(jnp.abs(rank_BO[:, :, None] - rank_BO[:, None]), 1)
    return 1 / jnp.log2(1 + distance_BOO) - 1 / jnp.log2(2 + distance_BOO)


def _sum_of_gains(logits_BO, relevance_BO, there_BO, constants: Constants, weight_BOO):
    """Sums over pairs the loss in bits, times the weight, times the difference of the gains."""
    lead_BOO, pairs_BOO = pairwise_margins(logits_BO, relevance_BO, there_BO)
    gain_BO = jnp.where(there_BO, 2.0**relevance_BO - 1, 0)
    place_O = jnp.arange(gain_BO.shape[1])
    best_B = (-jnp.sort(-gain_BO, axis=1) / jnp.log2(2.0 + place_O)).sum(1)
    # Shares of the best order's gain, as in NDCG; of filler rows there is none.
    gain_BO /= jnp.maximum(best_B, 1e-9)[:, None]
    weight_BOO *= jnp.abs(gain_BO[:, :, None] - gain_BO[:, None])
    bits_BOO = jax.nn.softplus(-constants.sigma * lead_BOO) / jnp.log(2.0)
    return (bits_BOO * weight_BOO * pairs_BOO).sum((1, 2))


LOSSES: dict[str, Callable] = {
    "squared": squared,
    "softmax": softmax,
    "listnet": listnet,
    "hinge": hinge,
    "logistic": logistic,
    "lambda_rank": lambda_rank,
    "ndcg_loss2": ndcg_loss2,
    "ndcg_loss2_plus": ndcg_loss2_plus,
}
