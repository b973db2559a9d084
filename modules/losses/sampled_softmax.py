"""Sampled softmax: the right word against a few drawn ones, where all would be too many.

Jean et al. 2015 (arXiv 1412.2007) with the sampler of ELMo's training (Peters et al. 2018;
TensorFlow's log_uniform_candidate_sampler, unique): V sorted from frequent to rare.
"""

import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

from modules.activation_sharding import constrain_sharding, num_shards, reduce_to_shards
from modules.losses import cross_entropy

CELLS = 4096  # of equal probability, for the draw's first step
MOST = 2**22  # draws that a sample may need
DOUBT = 1e-9  # chance that they do not suffice


class Sample(NamedTuple):
    """What `negatives` drew.

    Attributes:
        ids_S: distinct ids, in the order of drawing.
        expected_S: how often each was to be expected among them: its chance of being there.
        real_S: False where the draws came to an end before S were distinct.
        tries: how many draws it took, float32.
    """

    ids_S: jax.Array
    expected_S: jax.Array
    real_S: jax.Array
    tries: jax.Array


def negatives(rng, S: int, V: int) -> Sample:
    """S distinct ids of [0, V), drawn one after the other with P(k) = ln((k+2)/(k+1)) / ln(V+1).

    Drawn until S are distinct, as TensorFlow does; so that shapes are fixed, the draws are always
    as many as suffice in all but one case of a billion.

    Raises:
        ValueError: S ids are all there are, or so many that the full softmax is the cheaper one.
    """
    ids_T = draws(rng, enough(S, V), V)
    new_T = _first_times(ids_T)
    rank_T = jnp.cumsum(new_T)  # from 1
    slot_T = jnp.where(new_T, rank_T - 1, S)
    ids_S = jnp.zeros(S, ids_T.dtype).at[slot_T].set(ids_T, mode="drop")
    tries = jnp.minimum((rank_T < S).sum() + 1, len(ids_T)).astype(jnp.float32)
    return Sample(ids_S, expected(ids_S, tries, V), jnp.arange(S) < rank_T[-1], tries)


def probability(ids, V: int):
    """P(k) of the log-uniform distribution over [0, V), float32."""
    return jnp.log1p(1 / (ids + 1.0)) / math.log(V + 1)


def expected(ids, tries, V: int):
    """The chance that an id is among what so many draws bring, float32."""
    return -jnp.expm1(tries * jnp.log1p(-probability(ids, V)))


def draws(rng, T: int, V: int):
    """[T] independent log-uniform ids of [0, V), by the inverse of the distribution function."""
    # One float32 alone would be too coarse: of a million ids it could not reach each.
    coarse, fine = jax.random.split(rng)
    cell = math.log(V + 1) / CELLS
    begins_T = jnp.exp(jax.random.randint(coarse, (T,), 0, CELLS) * cell)
    x_T = begins_T * (1 + jnp.expm1(jax.random.uniform(fine, (T,)) * cell))
    return jnp.clip(x_T.astype(jnp.int32) - 1, 0, V - 1)


def _first_times(ids_T):
    """True where an id appears that did not before."""
    order_T = jnp.argsort(ids_T, stable=True)
    sorted_T = ids_T[order_T]
    first_T = jnp.concatenate([jnp.ones(1, bool), sorted_T[1:] != sorted_T[:-1]])
    return jnp.zeros_like(first_T).at[order_T].set(first_T)


@functools.cache
def enough(S: int, V: int) -> int:
    """Draws among which S are distinct, with a doubt of `DOUBT` at most.

    Raises:
        ValueError: as `negatives`.
    """
    if not 0 < S < V:
        raise ValueError(f"{S} negatives of {V} ids: 1 to V - 1 there can be; use the full softmax")
    few, many = 0, S
    while not _suffices(many, S, V):
        few, many = many, 2 * many
        if few > MOST:
            raise ValueError(
                f"{S} distinct negatives of {V} ids take more than {MOST} draws each time: "
                "draw fewer, or use the full softmax"
            )
    while many - few > many // 100 + 1:
        half = (few + many) // 2
        few, many = (few, half) if _suffices(half, S, V) else (half, many)
    return many


def _suffices(T: int, S: int, V: int) -> bool:
    """Whether T draws have S distinct ids, with a doubt of `DOUBT` at most."""
    missing, begin = 0.0, 0
    while begin < V:  # ids of nearly one probability together
        many = min(max(1, begin // 64), V - begin)
        chance = math.log1p(1 / (begin + (many - 1) / 2 + 1)) / math.log(V + 1)
        missing += many * math.exp(T * math.log1p(-chance))
        begin += many
    bounds = _chernoff(S - 1, V - missing), _chernoff(V - S + 1, missing)
    return V - missing > S and min(bounds) < math.log(DOUBT)


def _chernoff(x: int, mean: float) -> float:
    """A bound of the logarithm of the chance to be as far from the mean as x, or further."""
    # It holds for sums of independent events, and for these: each id found makes others rarer.
    return x - mean - (x * math.log(x / mean) if x else 0)


def sampled_cross_entropy(
    h_BPD, w_VD, bias_V, targets_BP, weights_BP, sample: Sample, *, chunks: int = 4
):
    """Cross entropy among the target and the negatives, each logit less ln(expected count).

    A negative that is the target is left out there.  The positions are taken in chunks, each with
    its gradients, as in `cross_entropy.softmax_cross_entropy`: at most [B, P / chunks, S] exists at
    once.

    Args:
        h_BPD: states, in the compute dtype.
        w_VD, bias_V: the softmax's rows and biases, float32; None: no biases.
        targets_BP, weights_BP: ids, and float32 weights; weight 0 leaves a position out.
        sample: of `negatives`, for all positions.
        chunks: pieces of the P positions; the last is filled up with weight 0.

    Returns:
        {"loss": (summed nats, weight)}, float32.
    """
    V = w_VD.shape[0]
    w_SD, w_BPD = (w_VD[ids].astype(h_BPD.dtype) for ids in (sample.ids_S, targets_BP))
    own_BP = jnp.einsum("BPD,BPD->BP", h_BPD, w_BPD, preferred_element_type=jnp.float32)
    own_BP -= jnp.log(expected(targets_BP, sample.tries, V))
    shift_S = jnp.where(sample.real_S, -jnp.log(sample.expected_S), -jnp.inf)
    if bias_V is not None:
        shift_S, own_BP = shift_S + bias_V[sample.ids_S], own_BP + bias_V[targets_BP]
    pieces = (cross_entropy.split(x, chunks) for x in (h_BPD, own_BP, targets_BP, weights_BP))
    nats = _cross_entropy(w_SD, shift_S, sample.ids_S, *pieces)
    return {"loss": (nats, weights_BP.sum())}


@jax.custom_vjp
def _cross_entropy(w_SD, shift_S, ids_S, h_cBPD, own_cBP, targets_cBP, weights_cBP):
    def step(nats, chunk):
        return nats + _chunk(w_SD, shift_S, ids_S, *chunk)[0], None

    given = (h_cBPD, own_cBP, targets_cBP, weights_cBP)
    return jax.lax.scan(step, jnp.zeros((), jnp.float32), given)[0]


def _chunk(w_SD, shift_S, ids_S, h_BPD, own_BP, targets_BP, weights_BP):
    """Loss of one chunk, and its gradients by the negatives' logits and the targets'."""
    logits_BPS = jnp.einsum("BPD,SD->BPS", h_BPD, w_SD, preferred_element_type=jnp.float32)
    hit_BPS = ids_S == targets_BP[..., None]
    logits_BPS = constrain_sharding(jnp.where(hit_BPS, -jnp.inf, logits_BPS + shift_S), "BPS")
    top_BP = jnp.maximum(logits_BPS.max(-1), own_BP)
    exp_BPS, exp_BP = jnp.exp(logits_BPS - top_BP[..., None]), jnp.exp(own_BP - top_BP)
    sum_BP = exp_BPS.sum(-1) + exp_BP
    nats = ((jnp.log(sum_BP) + top_BP - own_BP) * weights_BP).sum()
    slope_BPS = (exp_BPS * (weights_BP / sum_BP)[..., None]).astype(h_BPD.dtype)
    return nats, slope_BPS, (exp_BP / sum_BP - 1) * weights_BP


def _forward(w_SD, shift_S, ids_S, h_cBPD, own_cBP, targets_cBP, weights_cBP):
    # Each device adds up its own rows' share; the shares meet once, after the last chunk.
    groups = num_shards("B")

    def step(sums, chunk):
        nats, slope_BPS, down_BP = _chunk(w_SD, shift_S, ids_S, *chunk)
        slope, h = (x.reshape(groups, -1, x.shape[-1]) for x in (slope_BPS, chunk[0]))
        dw_BSD = jnp.einsum("BPS,BPD->BSD", slope, h, preferred_element_type=jnp.float32)
        new = (nats, dw_BSD, slope.astype(jnp.float32).sum(1))
        dh_BPD = jnp.einsum("BPS,SD->BPD", slope_BPS, w_SD)
        return jax.tree.map(jnp.add, sums, new), (dh_BPD, down_BP)

    shares = constrain_sharding(jnp.zeros((groups, *w_SD.shape), jnp.float32), "BSD")
    shifts = constrain_sharding(jnp.zeros((groups, *shift_S.shape), jnp.float32), "BS")
    sums = (jnp.zeros((), jnp.float32), shares, shifts)
    given = (h_cBPD, own_cBP, targets_cBP, weights_cBP)
    (nats, dw_BSD, dshift_BS), (dh_cBPD, down_cBP) = jax.lax.scan(step, sums, given)
    dw_SD, dshift_S = (
        reduce_to_shards(dw_BSD, "SD").astype(w_SD.dtype),
        reduce_to_shards(dshift_BS, "S"),
    )
    return nats, (dw_SD, dshift_S, dh_cBPD, down_cBP)


def _backward(kept, slope):
    dw_SD, dshift_S, dh_cBPD, down_cBP = (slope.astype(x.dtype) * x for x in kept)
    return dw_SD, dshift_S, None, dh_cBPD, down_cBP, None, None


_cross_entropy.defvjp(_forward, _backward)
