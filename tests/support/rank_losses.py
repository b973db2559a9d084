"""Losses of one list, by loops in float64."""

import itertools
import math

import numpy as np


def write_out(name, scores, relevance, margin=1.0, sigma=1.0, mu=10.0) -> float:
    """Computes the loss of a list as its paper has it."""
    scores, relevance = np.asarray(scores, np.float64), np.asarray(relevance, np.float64)
    if name == "squared":
        return float(np.mean([(x - r) ** 2 for x, r in zip(scores, relevance, strict=True)]))
    log = scores - np.log(np.exp(scores).sum())
    if name == "softmax":
        return -sum(r / sum(relevance) * x for r, x in zip(relevance, log, strict=True))
    if name == "listnet":
        share = np.exp(relevance) / np.exp(relevance).sum()
        return -float(share @ log)
    pairs = [
        (i, j)
        for i, j in itertools.permutations(range(len(scores)), 2)
        if relevance[i] > relevance[j]
    ]
    leads = [scores[i] - scores[j] for i, j in pairs]
    if name == "hinge":
        return np.mean([max(0, margin - x) for x in leads])
    if name == "logistic":
        return np.mean([np.log1p(np.exp(-sigma * x)) for x in leads])
    ranks = [1 + sum(other > x for other in scores) for x in scores]
    best = sorted(relevance, reverse=True)
    ideal = sum((2**r - 1) / math.log2(1 + rank) for rank, r in enumerate(best, 1))
    total = 0.0
    for (i, j), lead in zip(pairs, leads, strict=True):
        swap = abs(1 / math.log2(1 + ranks[i]) - 1 / math.log2(1 + ranks[j]))
        apart = abs(ranks[i] - ranks[j])
        delta = abs(1 / math.log2(1 + apart) - 1 / math.log2(2 + apart))
        weight = {"lambda_rank": swap, "ndcg_loss2": delta, "ndcg_loss2_plus": swap + mu * delta}
        gain = abs(2 ** relevance[i] - 2 ** relevance[j]) / ideal
        total += weight[name] * gain * math.log2(1 + math.exp(-sigma * lead))
    return total
