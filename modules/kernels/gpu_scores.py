"""Scores of a block of queries with a block of keys, in the registers of a Hopper GPU.

A block has the queries on one axis and the keys on the other; scores are in bits.  Where they have
distances, query i and key j of two blocks of 64 are 63 - i + j places from the furthest that occurs
among them: all meet two blocks of distances, of which each row has 64 numbers, one further on than
the row below.  Queries that walk over keys meet a new block of distances with each block of keys.
"""

import functools
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl

LOG2E = math.log2(math.e)
HIDDEN = -1e30  # a score that nobody sees


class Pair(NamedTuple):
    """A block of queries and one of keys, whose scores a warpgroup computes.

    Attributes:
        queries, keys: in shared memory, by name.
        columns, rows: numbers of each query, and of each key or score, by name, in registers.
        query: the first query.
        key: of each score, its key; int32.
        axis: of the queries; of the keys it is the other.
        step: blocks of keys that these queries have met before; of no use where queries go by.
    """

    queries: Mapping[str, Any]
    keys: Mapping[str, Any]
    columns: Mapping[str, Any]
    rows: Mapping[str, Any]
    query: Any
    key: Any
    axis: int
    step: Any = 0


def index_keys(warpgroup, plan, first, shape, axis: int):
    """Returns the key of each score: int32."""
    return warpgroup.iota(plan, jnp.int32, shape, axis) + first


def score(warpgroup, plan, pair: Pair, scratch, place):
    """Computes the scores of a pair, HIDDEN where a query does not see the key."""
    raw = None
    if plan.terms == "distances":
        raw = _score_distances(warpgroup, plan, pair, scratch, place)
    scores = _multiply(warpgroup, plan, pair, "q", pair.keys["k"], raw) * (LOG2E * plan.K**-0.5)
    if plan.terms == "bias":
        if pair.axis == 0:
            bias = warpgroup.load_block(plan, pair.keys["bias"])
        else:
            bias = plan.exchange.load_transposed(plan, pair.keys["bias_by_query"])
        scores += bias * LOG2E
    if plan.terms == "distances":
        scores += answer_segments(warpgroup, plan, pair, scores.shape)
    return hide(warpgroup, plan, pair, scores)


def _score_distances(warpgroup, plan, pair: Pair, scratch, place):
    multiply = functools.partial(_multiply, warpgroup, plan, pair, "q_position")
    low, high = pair.keys["distances"]
    if pair.axis == 1:
        raw = jnp.where(_is_low(warpgroup, plan), multiply(low), multiply(high))
        return plan.exchange.roll(plan, raw, scratch.extra["roll"].at[place.group], axis=0)
    # The second block of distances is the first of the next step, with the same queries.
    memory = scratch.extra["slide"].at[place.group]

    @pl.when(pair.step == 0)
    def _():
        plan.exchange.store_scores(plan, multiply(low), memory.at[0])

    plan.exchange.store_scores(plan, multiply(high), memory.at[lax.rem(pair.step + 1, 2)])
    return plan.exchange.load_by_key(plan, memory, pair.step)


def answer_segments(warpgroup, plan, pair: Pair, shape):
    """Returns what queries add to the scores of keys of other segments."""
    answer = warpgroup.load(plan, pair.queries["answer"], pair.axis) * LOG2E
    is_other = _is_other_segment(warpgroup, pair, shape)
    return jnp.where(is_other, warpgroup.spread(answer, shape, pair.axis), 0.0)


def add_term_grads(warpgroup, plan, pair: Pair, scratch, place, da, grads: dict) -> dict:
    """Adds to the gradients of queries before distances, and of answers to segments.

    Args:
        grads: with "draw" of the last step, whose second block of distances is the first of this
            one: they are multiplied together.
    """
    low, high = pair.keys["distances"]
    # The first of the two has been read.
    memory = scratch.extra["slide"].at[place.group, lax.rem(pair.step, 2)]
    draw = plan.exchange.roll(plan, da, memory, axis=1, is_back=True).astype(low.dtype)
    is_low = _is_low(warpgroup, plan)
    whole = jnp.where(is_low, draw, grads["draw"])
    total = warpgroup.multiply(plan, whole, low, total=grads["dq_position"])

    def add_rest():
        rest = jnp.where(is_low, jnp.zeros((), draw.dtype), draw)
        return warpgroup.multiply(plan, rest, high, total=total)

    total = lax.cond(pair.step == place.count - 1, add_rest, lambda: total)
    of_others = jnp.where(_is_other_segment(warpgroup, pair, da.shape), da, 0.0)
    danswer = grads["danswer"] + of_others.sum(1)
    return {"dq_position": total, "danswer": danswer, "draw": draw}


def hide(warpgroup, plan, pair: Pair, scores):
    """Returns HIDDEN for the scores of keys that a query does not see."""
    shape, j = scores.shape, pair.key
    query = {n: warpgroup.spread(x, shape, pair.axis) for n, x in pair.columns.items()}
    key = {n: _spread_key(warpgroup, x, pair, shape) for n, x in pair.rows.items()}
    visible = j < query["end"]
    if "first" in query:
        visible &= j >= query["first"]
    if "below" in query:
        visible &= key["rank"] < query["below"]
    if "group" in query:
        visible &= key["key_group"] == query["group"]
    if "own" in query:
        visible |= j == query["own"]
    return jnp.where(visible, scores, HIDDEN)


def decide(warpgroup, plan, pair: Pair, shared, place):
    """Decides which of the whole array [B, H, P, J] `dropout_bits` keeps; None: all."""
    if not plan.rate:
        return None
    # All wrap around as uint32 does, as in `dropout_bits`.
    row, head = shared.rows_B[place.row], shared.heads_H[place.head]
    first = (row * jnp.uint32(plan.H) + head) * jnp.uint32(plan.P) + pair.query.astype(jnp.uint32)
    i = warpgroup.iota(plan, jnp.uint32, pair.key.shape, pair.axis)
    position = (first + i) * jnp.uint32(plan.J) + pair.key.astype(jnp.uint32)
    return plan.is_kept(plan.rate, position, [shared.words_2[n] for n in range(2)])


def _multiply(warpgroup, plan, pair: Pair, name: str, keys, total=None):
    """Multiplies queries with keys, or with what stands in their place, and adds to a total."""
    operands = (pair.queries[name], keys) if pair.axis == 0 else (keys, pair.queries[name])
    return warpgroup.multiply(plan, *operands, is_transposed=True, total=total)


def _is_low(warpgroup, plan):
    """Tells, before scores are rolled, for which the first of two blocks of distances counts."""
    shape = (warpgroup.ROWS, warpgroup.ROWS)
    i, n = (warpgroup.iota(plan, jnp.int32, shape, axis) for axis in (0, 1))
    return i + n >= warpgroup.ROWS - 1


def _is_other_segment(warpgroup, pair: Pair, shape):
    key = _spread_key(warpgroup, pair.rows["key_segment"], pair, shape)
    return key != warpgroup.spread(pair.columns["segment"], shape, pair.axis)


def _spread_key(warpgroup, x, pair: Pair, shape):
    return x if len(x.shape) == 2 else warpgroup.spread(x, shape, 1 - pair.axis)
