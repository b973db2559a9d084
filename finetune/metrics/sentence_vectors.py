"""Measures sentence vectors: what they agree with, and how far they have collapsed.

Vectors are [N, D], a row each; all is computed in float64.  Wang & Isola 2020 (arXiv 2005.10242),
Su et al. 2021 (arXiv 2103.15316), Yan et al. 2021 (arXiv 2105.11741).
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from finetune.metrics.classification import spearman
from pretrain.runtime.errors import UserError

ROWS = 1024  # of a block of distances


def normalize(x_ND: np.ndarray) -> np.ndarray:
    """Divides each vector by its length; a zero vector stays zero."""
    # Collapsed vectors differ in the last digits of float32.
    x_ND = np.asarray(x_ND, np.float64)
    return x_ND / np.maximum(np.linalg.norm(x_ND, axis=-1, keepdims=True), 1e-12)


def cosines(one_ND: np.ndarray, other_ND: np.ndarray) -> np.ndarray:
    """Computes the cosine of each pair of rows, [N]; 0 of a zero vector."""
    return (normalize(one_ND) * normalize(other_ND)).sum(-1)


def alignment(one_ND: np.ndarray, other_ND: np.ndarray) -> float:
    """Computes the mean squared distance of pairs that mean the same, on the unit sphere.

    Wang & Isola 2020, equation 2 with alpha = 2; 0 is best.
    """
    return float(np.square(normalize(one_ND) - normalize(other_ND)).sum(-1).mean())


def uniformity(x_ND: np.ndarray) -> float:
    """Computes the logarithm of the mean Gaussian kernel of all pairs, on the unit sphere.

    Wang & Isola 2020, section 4.1 with t = 2; 0 if all vectors are one, lower is better.

    Raises:
        UserError: there are fewer than two vectors.  So does `mean_cosine`.
    """
    u_ND = normalize(x_ND)
    N, total = _count_rows(u_ND), 0.0
    for start in range(0, N, ROWS):  # N x N distances would not fit
        block_MD = u_ND[start : start + ROWS]
        square_M, square_N = (np.square(x).sum(-1) for x in (block_MD, u_ND))
        distance_MN = square_M[:, None] + square_N - 2 * block_MD @ u_ND.T
        kernel_MN = np.exp(-2 * distance_MN)
        # A vector's distance from itself is no pair's.
        total += kernel_MN.sum() - kernel_MN[:, start : start + ROWS].trace()
    return float(np.log(total / (N * (N - 1))))


def mean_cosine(x_ND: np.ndarray) -> float:
    """Computes the mean cosine of all pairs of different rows: what a random pair has."""
    u_ND = normalize(x_ND)
    N = _count_rows(u_ND)
    # The square of the sum holds every pair twice, and each row with itself.
    return float((np.square(u_ND.sum(0)).sum() - np.square(u_ND).sum()) / (N * (N - 1)))


def singular_shares(x_ND: np.ndarray) -> np.ndarray:
    """Computes each direction's share of the sum of squares, the greatest first: [min(N, D)].

    The vectors are of length 1 and not centred: the first share of collapsed ones is near 1.
    """
    squares_D = np.square(np.linalg.svd(normalize(x_ND), compute_uv=False))
    return squares_D / max(squares_D.sum(), 1e-300)


def effective_rank(shares_D: np.ndarray) -> float:
    """Computes how many directions matter: the exponential of the shares' entropy.

    Roy & Vetterli 2007, of squared singular values; 1 if all vectors lie on one line.
    """
    positive = shares_D[shares_D > 0]
    return float(np.exp(-(positive * np.log(positive)).sum()))


class Whitening(NamedTuple):
    """A linear map after which vectors have mean 0 and covariance 1: (x - mean) @ kernel.

    Su et al. 2021, algorithm 1.
    """

    mean_D: np.ndarray
    kernel_DK: np.ndarray

    def __call__(self, x_ND: np.ndarray) -> np.ndarray:
        return (np.asarray(x_ND, np.float64) - self.mean_D) @ self.kernel_DK


def fit_whitening(x_ND: np.ndarray, K: int) -> Whitening:
    """Fits the whitening to the K directions in which vectors vary most.

    Raises:
        UserError: the vectors do not vary in so many directions.
    """
    x_ND = np.asarray(x_ND, np.float64)
    mean_D = x_ND.mean(0)
    variance_D, axes_DD = np.linalg.eigh(np.cov(x_ND - mean_D, rowvar=False, bias=True))
    # eigh sorts from the least to the greatest.
    variance_D, axes_DD = variance_D[::-1], axes_DD[:, ::-1]
    rank = int((variance_D > 1e-10 * variance_D[0]).sum())
    if not 0 < K <= rank:
        # The others would be divided by nearly 0, and noise would count like all else.
        raise UserError(f"whiten={K}: these {len(x_ND):,} vectors vary in {rank} directions")
    return Whitening(mean_D, axes_DD[:, :K] / np.sqrt(variance_D[:K]))


def aggregate(scores: Sequence[tuple[np.ndarray, np.ndarray]]) -> dict[str, float]:
    """Computes the three ways in which several files of pairs become one Spearman correlation.

    Args:
        scores: of each file cosines and people's scores, [pairs].

    Returns:
        "all", of all pairs together (ConSERT's), "mean" of the files, and "weighted mean" by their
        pairs, the two of SentEval.
    """
    by_file = [spearman(*map(list, pair)) for pair in scores]
    joined = [np.concatenate(part).tolist() for part in zip(*scores, strict=True)]
    return {
        "all": spearman(*joined),
        "mean": float(np.mean(by_file)),
        "weighted mean": float(np.average(by_file, weights=[len(x) for x, _ in scores])),
    }


def rank_tokens(sentences: Iterable[Iterable[str]]) -> list[str]:
    """Ranks tokens by how often they occur in all sentences; of equal ones by spelling."""
    counts = Counter(token for sentence in sentences for token in sentence)
    return sorted(counts, key=lambda token: (-counts[token], token))


def mean_without(
    vectors_TD: np.ndarray, tokens: Sequence[str], left_out: Sequence[frozenset[str]]
) -> np.ndarray:
    """Averages a sentence's tokens but those that are left out, [K, D] for K sets of these.

    Zeros where no token is left (Yan et al. 2021, figure 2).
    """
    kept_KT = np.array([[token not in x for token in tokens] for x in left_out], np.float64)
    kept_KT = kept_KT.reshape(len(left_out), len(tokens))
    return kept_KT @ vectors_TD / np.maximum(kept_KT.sum(1, keepdims=True), 1)


def _count_rows(x_ND: np.ndarray) -> int:
    if len(x_ND) < 2:
        raise UserError("pairs of sentences are compared: there are fewer than two")
    return len(x_ND)
