"""Samples what is hidden and in which order it is predicted: pure functions of a key, on device."""

import functools
import math

import jax
import jax.numpy as jnp

from modules.kernels.unrolled_scan import scan_numbers
from modules.sampling import sample_positions


def sample_spans(
    rng,
    starts_L,
    eligible_L,
    goal: int,
    *,
    max_gram: int = 5,
    alpha: int = 6,
    beta: int = 1,
    faithful: bool = False,
):
    """Samples XLNet's n-grams to predict: bool [L] with exactly `goal` True.

    Runs of n words, n in 1..max_gram with probability in proportion to 1/n, each placed at random
    within a context of n * alpha // beta pieces and begun at the start of a word.

    Args:
        starts_L: bool, the piece begins a word.
        eligible_L: bool, may be predicted; fewer than `goal` of these are all chosen.
        faithful: n counts pieces, as in `_sample_mask` of the released data_utils.py.
    """
    L = starts_L.shape[0]
    # A run and its context take at least 1 + alpha // beta pieces.
    trips = min(goal, -(-L // (1 + alpha // beta)))
    gram_rng, context_rng, single_rng = jax.random.split(rng, 3)
    odds = 1 / jnp.arange(1, max_gram + 1)
    grams = 1 + jax.random.categorical(gram_rng, jnp.log(odds), shape=(trips,))
    wheres = jax.random.uniform(context_rng, (trips,))

    place_L = jnp.arange(L)
    next_start = jax.lax.cummin(jnp.where(starts_L, place_L, L), reverse=True)
    next_start = jnp.append(next_start, jnp.full(1, L))  # next_start[L] is the end
    before = jnp.append(0, jnp.cumsum(eligible_L))  # eligible pieces before each place
    # The end of n words, or pieces, from each place: a run then looks up one number.
    ends = [jnp.arange(L + 1)]
    for _ in range(max_gram):
        end = jnp.minimum(ends[-1] + 1, L)
        ends.append(end if faithful else next_start[end])
    end_of = jnp.stack(ends)

    # A scan over as many runs as can be needed: shapes on device cannot depend on what is drawn.
    # It carries numbers and no row: the places are marked after it, all at once.
    def place_run(state, draw):
        done, here = state
        # As the released code: the last run is no longer than what the goal leaves.
        n = jnp.minimum(draw[0], goal - done)
        context = n * alpha // beta
        left = jnp.floor(draw[1] * context).astype(jnp.int32)
        begin = next_start[jnp.minimum(here + left, L)]
        end = end_of[n, begin]
        # A run that would reach the end is discarded, and nothing follows it.
        fits = (n > 0) & (end < L)
        # Words are several pieces, so n of them may exceed the goal: the run stops there.
        pieces = jnp.where(fits, jnp.minimum(before[end] - before[begin], goal - done), 0)
        here = jnp.where(fits, end + context - left, L)
        return (done + pieces, here), (begin, before[begin] + pieces)

    zero = jnp.zeros((), jnp.int32)
    runs = scan_numbers(place_run, (zero, zero), (grams, wheres), trips)
    (done, _), (begins, stops) = runs
    # From a run's beginning up to the eligible piece that it ends with.
    is_inside = (place_L >= begins[:, None]) & (before[:-1] < stops[:, None])
    picked_L = is_inside.any(0) & eligible_L
    # Positions that the runs leave over are drawn singly.
    return picked_L | sample_positions(single_rng, eligible_L & ~picked_L, goal - done)


def sample_masked_units(
    rng, starts_L, eligible_L, goal_O, odds=(1.0,), *, unit: int = 0, part_L=None
):
    """Samples whole units of text, of each part at most its goal of positions: bool [L].

    The text is cut end to end into runs of 1, 2, ... units with these odds, and the runs are
    taken in a random order.  A run of words gives ALBERT's n-grams (odds 1/n) and SpanBERT's
    spans (geometric odds).

    Args:
        starts_L: bool, a unit begins here: everywhere, or where words do.
        eligible_L: bool, may be picked; a run does not reach across what may not.
        goal_O: places wanted of each part.
        unit: places of the longest unit, where that is known (1: every place begins one).
        part_L: the part of each place, from 0; what may not be picked lies between parts.  None:
            there is one.
    """
    L = starts_L.shape[0]
    length_rng, order_rng = jax.random.split(rng)
    lengths_L = 1 + jax.random.categorical(length_rng, jnp.log(jnp.array(odds)), shape=(L,))
    # As many lengths are drawn as there can be units; a unit's run is the first that ends behind
    # it.
    run_L = jnp.searchsorted(jnp.cumsum(lengths_L), jnp.cumsum(starts_L) - 1, side="right")
    border_L = (run_L[1:] != run_L[:-1]) | (eligible_L[1:] != eligible_L[:-1])
    run_L = jnp.append(0, jnp.cumsum(border_L))  # by number, and none across a border
    size_L = jnp.zeros(L, jnp.int32).at[run_L].add(eligible_L)
    order_L = jnp.argsort(jax.random.uniform(order_rng, (L,)))
    size_OL = size_L[order_L][None]
    if part_L is not None:
        part_of_run_L = jnp.zeros(L, part_L.dtype).at[run_L].max(jnp.where(eligible_L, part_L, 0))
        parts_O1 = jnp.arange(len(goal_O))[:, None]
        size_OL = jnp.where(part_of_run_L[order_L] == parts_O1, size_OL, 0)
    # One that would exceed the goal is passed over, as in BERT's create_masked_lm_predictions.
    take = functools.partial(take_fitting, largest=unit * len(odds))
    fitting_L = jax.vmap(take)(size_OL, goal_O).any(0)
    taken_L = jnp.zeros(L, bool).at[order_L].set(fitting_L)
    return taken_L[run_L] & eligible_L


def take_fitting(size_L, goal, largest: int = 0):
    """Takes, in their order, each of these sizes that still fits: bool [L].

    Args:
        size_L: int, 0 for no unit.
        goal: the sum of the sizes is at most this.
        largest: an upper limit of the sizes; 0: unknown.
    """
    L = len(size_L)
    # A turn ends at a size that no longer fits, smaller than that of the turn before.  So there are
    # no more turns than the `largest` size, nor than different sizes in L positions.
    # The same number for all rows: a `while_loop` would make devices wait to agree on its end.
    turns = min(largest or L, math.isqrt(2 * L) + 1)

    def take(_, state):
        taken_L, left = state
        fits_L = (size_L > 0) & ~taken_L & (size_L <= left)
        fitting_L = jnp.where(fits_L, size_L, 0)
        now_L = fits_L & (jnp.cumsum(fitting_L) <= left)  # up to the first that no longer fits
        return taken_L | now_L, left - jnp.where(now_L, size_L, 0).sum()

    nothing = jnp.zeros(size_L.shape, bool), jnp.asarray(goal, size_L.dtype)
    return jax.lax.fori_loop(0, turns, take, nothing)[0]


def mask_tokens(
    rng, tokens_L, picked_L, *, mask_id: int, V: int, mask_rate: float, random_rate: float
):
    """Replaces what was picked as BERT does: by <mask>, by a token drawn from all V, or not."""
    # Every place draws for itself, within a whole word, too.
    kind_rng, token_rng = jax.random.split(rng)
    kind_L = jax.random.uniform(kind_rng, tokens_L.shape)
    # As BERT's code: of all V, the special tokens and the right one among them.
    any_L = jax.random.randint(token_rng, tokens_L.shape, 0, V, tokens_L.dtype)
    drawn_L = jnp.where(kind_L < mask_rate + random_rate, any_L, tokens_L)
    return jnp.where(picked_L, jnp.where(kind_L < mask_rate, mask_id, drawn_L), tokens_L)


def find_targets(targets_BL, P: int):
    """Finds the first P positions that are True, and whether there were so many: [B, P] each."""
    L = targets_BL.shape[1]
    slots_BP = jnp.sort(jnp.where(targets_BL, jnp.arange(L), L), axis=1)[:, :P]
    # Unused slots point at the last position: any index that exists, as their weight is 0.
    return jnp.minimum(slots_BP, L - 1), slots_BP < L


def sample_order(rng, L: int, size: int):
    """Samples XLNet's order of L positions: chunks of `size` in order, all permuted alike: [L]."""
    # The released code shuffles the rows of [size, L / size]: one order for all chunks.
    within = jax.random.permutation(rng, size)
    return (jnp.arange(0, L, size)[:, None] + within).reshape(L)


def rank_positions(order_L, picked_L, special_L):
    """Ranks positions under a permutation: (rank_L, sees_below_L), which say who sees whom.

    i sees j if rank[j] < sees_below[i] (`masks.Mask`), as in `_local_perm` of the released
    data_utils.py: context sees only context, and the others whatever comes before them.
    """
    # Context is of rank -1, so it sees only context, and is seen by all.  A special place is not
    # predicted: it may see itself.
    rank_L = jnp.where(picked_L | special_L, order_L, -1)
    return rank_L, jnp.where(picked_L & ~special_L, rank_L, rank_L + 1)


def concatenate_ranks(earlier, later, L: int):
    """Concatenates ranks of two parts: the later sees all of the earlier, which sees none of it."""
    # Ranks of a part of L positions are -1 to L - 1, and what it sees is below L + 1 at most.
    return tuple(jnp.append(a, b + L + 1) for a, b in zip(earlier, later, strict=True))
