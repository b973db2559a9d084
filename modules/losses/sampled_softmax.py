"""Sampled softmax: cross entropy among the target and sampled negatives.

Jean et al. 2015 (arXiv 1412.2007) with the sampler of ELMo's training (Peters et al. 2018;
TensorFlow's log_uniform_candidate_sampler, unique): V sorted from frequent to rare.
"""

import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from modules.kernels.sampled_cross_entropy import sampled_cross_entropy as cross_entropy
from modules.metrics import Metrics, Sum

CELLS = 4096  # of equal probability, for the draw's first step
MAX_DRAWS = 2**22  # for one sample
FAILURE_PROB = 1e-9  # that the draws do not suffice


class Sample(NamedTuple):
    """Negatives that `sample_negatives` drew.

    Attributes:
        ids_S: distinct ids, in the order of drawing.
        expected_S: expected count of each: the probability that it is among them.
        real_S: False where the draws came to an end before S were distinct.
        tries: the number of draws it took, float32.
    """

    ids_S: jax.Array
    expected_S: jax.Array
    real_S: jax.Array
    tries: jax.Array


def sample_negatives(rng, S: int, V: int) -> Sample:
    """Draws S distinct ids of [0, V), each with P(k) = ln((k+2)/(k+1)) / ln(V+1).

    Raises:
        ValueError: S >= V, or S is so large that a full softmax would be cheaper.
    """
    # TensorFlow draws until S are distinct.  Here shapes are fixed: the draws are always as many as
    # suffice in all but one case of a billion, and those behind the S-th distinct id are ignored.
    ids_T = sample_log_uniform(rng, num_draws(S, V), V)
    new_T = _is_first(ids_T)
    rank_T = jnp.cumsum(new_T)  # from 1
    slot_T = jnp.where(new_T, rank_T - 1, S)  # S is out of range: dropped
    ids_S = jnp.zeros(S, ids_T.dtype).at[slot_T].set(ids_T, mode="drop")
    tries = jnp.minimum((rank_T < S).sum() + 1, len(ids_T)).astype(jnp.float32)
    return Sample(ids_S, expected_count(ids_S, tries, V), jnp.arange(S) < rank_T[-1], tries)


def log_uniform_prob(ids, V: int):
    """Computes P(k) of the log-uniform distribution over [0, V), float32."""
    return jnp.log1p(1 / (ids + 1.0)) / math.log(V + 1)


def expected_count(ids, tries, V: int):
    """Computes the probability that an id is among so many draws, float32."""
    # 1 - (1 - P)^tries; written so, a small P keeps its digits.
    return -jnp.expm1(tries * jnp.log1p(-log_uniform_prob(ids, V)))


def sample_log_uniform(rng, T: int, V: int):
    """Draws [T] independent ids of [0, V), by the inverse of the distribution function."""
    # P(id <= k) = ln(k + 2) / ln(V + 1), so k is exp(u ln(V + 1)) - 1, rounded down.
    # One float32 alone would be too coarse: of a million ids it could not reach each.
    coarse, fine = jax.random.split(rng)
    cell = math.log(V + 1) / CELLS
    begins_T = jnp.exp(jax.random.randint(coarse, (T,), 0, CELLS) * cell)
    x_T = begins_T * (1 + jnp.expm1(jax.random.uniform(fine, (T,)) * cell))
    return jnp.clip(x_T.astype(jnp.int32) - 1, 0, V - 1)


def _is_first(ids_T):
    """Returns True where an id appears that did not before."""
    # Sorted, equal ids are neighbours; V flags would be more than T ids.  Stable: in draw order.
    order_T = jnp.argsort(ids_T, stable=True)
    sorted_T = ids_T[order_T]
    first_T = jnp.concatenate([jnp.ones(1, bool), sorted_T[1:] != sorted_T[:-1]])
    return jnp.zeros_like(first_T).at[order_T].set(first_T)


@functools.cache
def num_draws(S: int, V: int) -> int:
    """Counts the draws among which S are distinct, but for `FAILURE_PROB`.

    Raises:
        ValueError: as `sample_negatives`.
    """
    if not 0 < S < V:
        raise ValueError(f"{S} negatives of {V} ids: 1 to V - 1 there can be; use the full softmax")
    few, many = 0, S  # by doubling, then by halves to within a hundredth
    while not _suffices(many, S, V):
        few, many = many, 2 * many
        if few > MAX_DRAWS:
            raise ValueError(
                f"{S} distinct negatives of {V} ids take more than {MAX_DRAWS} draws each time: "
                "draw fewer, or use the full softmax"
            )
    while many - few > many // 100 + 1:
        half = (few + many) // 2
        few, many = (few, half) if _suffices(half, S, V) else (half, many)
    return many


def _suffices(T: int, S: int, V: int) -> bool:
    """Checks if T draws have S distinct ids, but for `FAILURE_PROB`."""
    missing, begin = 0.0, 0  # the expected number of ids that are not drawn
    while begin < V:  # ids of nearly one probability together
        many = min(max(1, begin // 64), V - begin)
        chance = math.log1p(1 / (begin + (many - 1) / 2 + 1)) / math.log(V + 1)
        missing += many * math.exp(T * math.log1p(-chance))
        begin += many
    bounds = _chernoff(S - 1, V - missing), _chernoff(V - S + 1, missing)
    return V - missing > S and min(bounds) < math.log(FAILURE_PROB)


def _chernoff(x: int, mean: float) -> float:
    """Bounds the logarithm of the probability to be as far from the mean as x, or further."""
    # It holds for sums of independent events.  It also holds for these, which are negatively
    # dependent: each id that is drawn makes others rarer.
    return x - mean - (x * math.log(x / mean) if x else 0)


def sampled_cross_entropy(
    h_BPD,
    V: int,
    read: Callable[[jax.Array], tuple[jax.Array, jax.Array | None]],
    targets_BP,
    weights_BP,
    sample: Sample,
    *,
    chunks: int = 4,
) -> Metrics:
    """Computes cross entropy among target and negatives, each logit less ln(expected count).

    Args:
        h_BPD: states, in the compute dtype.
        V: size of the vocabulary.
        read: ids -> the softmax's rows and biases, float32; None: no biases.
        targets_BP, weights_BP: ids, and float32 weights; weight 0 leaves a position out.
        sample: of `sample_negatives`, for all positions.
        chunks: pieces of the P positions; at most [B, P / chunks, S] exists at once.

    Returns:
        "loss" in nats, which is trained; float32.
    """
    # Rows first, then the cast: the whole table is never copied.
    (w_SD, bias_S), (w_BPD, bias_BP) = read(sample.ids_S), read(targets_BP)
    w_SD, w_BPD = w_SD.astype(h_BPD.dtype), w_BPD.astype(h_BPD.dtype)
    target_logit_BP = jnp.einsum("BPD,BPD->BP", h_BPD, w_BPD, preferred_element_type=jnp.float32)
    # Less ln(expected count) the sampled softmax estimates the full one (Jean et al. 2015).
    target_logit_BP -= jnp.log(expected_count(targets_BP, sample.tries, V))
    shift_S = jnp.where(sample.real_S, -jnp.log(sample.expected_S), -jnp.inf)
    if bias_S is not None and bias_BP is not None:
        shift_S, target_logit_BP = shift_S + bias_S, target_logit_BP + bias_BP
    # The kernel leaves a negative out where it is the target (an accidental hit).
    positions = (h_BPD, target_logit_BP, targets_BP, weights_BP)
    nats = cross_entropy(w_SD, shift_S, sample.ids_S, *positions, chunks)
    return {"loss": Sum(nats, weights_BP.sum(), "nats", train=True)}
