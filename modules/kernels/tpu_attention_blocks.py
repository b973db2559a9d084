"""Programs of `tpu_attention`: a block of queries, of a few heads and one row, in a TPU's VMEM.

All J keys of the row are at hand, so a softmax is that of whole rows, and nothing of [L, J] leaves
the program.  Heads lie side by side in the W lanes of a block.  A product over all lanes is one
head's where the other operand is 0 in the lanes of the others: as dear as of a narrow head.
"""

import functools
import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

LANES = 128
# A query's numbers, by column: it sees the keys from FIRST up to, but not, END, of ranks below
# BELOW, of its GROUP, and the key OWN.  Its distances begin at START.
FIRST, END, BELOW, GROUP, OWN, SEGMENT, START = range(7)
# A key's numbers, by row.
RANK, KEY_GROUP, KEY_SEGMENT = range(3)
# Rows of the table of biases: three that are added to a query before its products with keys,
# positions and segments, and the score of a key of another segment.
CONTENT, POSITION, SEGMENT_BIAS, OTHER = range(4)


class Plan(NamedTuple):
    """Sizes of a call, known before it is compiled.

    Attributes:
        P, L, J: queries, positions of the sequence, keys.
        H, K: heads of the whole model, and their width.
        F: H * K of this device.
        rate: of dropout.
        is_kept: (rate, a, b, words) -> bool, of position a + b, see `dropout_bits`.
        shift: of distances: "order", queries in order; "slots"; "": there are none.
        is_interpreted: computed step by step, on a machine that is no TPU.
    """

    P: int
    L: int
    J: int
    H: int
    K: int
    F: int
    rate: float
    is_kept: Callable
    shift: str
    is_interpreted: bool

    @property
    def lanes(self) -> int:
        """Returns the lanes of a block, of one head or several."""
        return max(self.K, LANES)

    @property
    def rows(self) -> int:
        """Returns the queries of a block."""
        # bfloat16 comes in tiles of 16 rows.
        return min(LANES, -(-self.P // 16) * 16)

    @property
    def blocks(self) -> int:
        """Returns the blocks of queries of a row; the last is filled up."""
        return -(-self.P // self.rows)


class Block(NamedTuple):
    """Arrays that a program reads; `q`, `bias` and all that is computed are float32.

    Attributes:
        plan: the sizes.
        seeds: two words of dropout, and the first head of this device, uint32.
        row: the number of this row in the whole batch, uint32.
        queries, keys: their numbers, [rows, LANES] and [8, J].
        bias: [8, W], see CONTENT.
        r: distances: in order those that the block's queries have, [J + rows, W]; else all.
    """

    plan: Plan
    seeds: Any
    row: Any
    q: Any
    k: Any
    v: Any
    queries: Any
    keys: Any
    bias: Any = None
    r: Any = None


def run_forward(plan: Plan, rows_ref, tables_ref, seeds_ref, *refs):
    """Computes the output of a block."""
    *inputs, o_ref = refs
    x = _load(plan, rows_ref, seeds_ref, inputs)
    hidden, o = _hide_keys(x), jnp.zeros(x.q.shape, jnp.float32)
    for g in range(plan.lanes // plan.K):
        e, total = _exponentiate(_score(x, g)[0] + hidden)
        e = _drop(x, e, g)
        # Divided behind the product, where there are few numbers.
        o_g = _multiply(e.astype(x.v.dtype), x.v) * (1 / (total * (1 - plan.rate)))
        o += _select_head(x, o_g, g)
    o_ref[0] = o.astype(o_ref.dtype)


def run_backward(plan: Plan, rows_ref, tables_ref, seeds_ref, *refs):
    """Computes the gradients of a block; those of keys and distances add up over the blocks."""
    num_inputs = 7 if plan.shift else 5
    do_ref, dq_ref, dk_ref, dv_ref, *shared, dk_sum, dv_sum = refs[num_inputs:]
    b, n = pl.program_id(1), pl.program_id(2)
    x = _load(plan, rows_ref, seeds_ref, refs[:num_inputs])
    do = _mask_lanes(plan, do_ref[0]).astype(jnp.float32) * (1 / (1 - plan.rate))
    hidden, dq = _hide_keys(x), jnp.zeros(x.q.shape, jnp.float32)
    values, keys, distances = [], [], []  # pairs of factors of their gradients, one for each head

    @pl.when(n == 0)
    def _():
        dk_sum[...] = jnp.zeros_like(dk_sum)
        dv_sum[...] = jnp.zeros_like(dv_sum)

    @pl.when((b == 0) & (n == 0))
    def _():
        for ref in shared:
            ref[...] = jnp.zeros_like(ref)

    for g in range(plan.lanes // plan.K):
        scores, *scaled_queries = _score(x, g)
        e, total = _exponentiate(scores + hidden)
        p = e * (1 / total)
        p_kept = _drop(x, p, g)
        do_g = _select_head(x, do, g).astype(x.v.dtype)
        # The rest of what the softmax's Jacobian makes of a gradient that passed the dropout.
        dp = p_kept * _multiply(do_g, x.v, "NT")
        da = dp - p * dp.sum(1, keepdims=True)
        da_low = da.astype(x.k.dtype)
        values.append((p_kept.astype(x.v.dtype), do_g))
        keys.append((da_low, scaled_queries[0]))
        dq_g = _select_head(x, _multiply(da_low, x.k), g) * plan.K**-0.5
        if plan.shift:
            draw = _put_rows(x, da).astype(x.k.dtype)
            distances.append((draw, scaled_queries[1]))
            dq_g += _add_relative_grads(x, g, da, dq_g, draw, shared[0])
        dq += dq_g
    dq_ref[0] = dq.astype(dq_ref.dtype)
    dv_sum[...] += _sum_products(values)
    dk_sum[...] += _sum_products(keys)
    if plan.shift:
        shared[1][tables_ref[b], _find_window(plan), :] += _sum_products(distances)

    @pl.when(n == pl.num_programs(2) - 1)
    def _():
        dk_ref[0] = dk_sum[...].astype(dk_ref.dtype)
        dv_ref[0] = dv_sum[...].astype(dv_ref.dtype)


def _load(plan: Plan, rows_ref, seeds_ref, refs) -> Block:
    q, k, v = (_mask_lanes(plan, ref[0]) for ref in refs[:3])
    queries, keys = (ref[0] for ref in refs[3:5])
    relative = []
    if plan.shift:
        bias_ref, r_ref = refs[5:]
        terms = bias_ref[...].astype(jnp.float32), r_ref[0, _find_window(plan), :]
        relative = [_mask_lanes(plan, x) for x in terms]
    seeds = [seeds_ref[n].astype(jnp.uint32) for n in range(3)]
    row = rows_ref[pl.program_id(1)].astype(jnp.uint32)
    return Block(plan, seeds, row, q.astype(jnp.float32), k, v, queries, keys, *relative)


def _mask_lanes(plan: Plan, x):
    """Returns zeros for the lanes behind the last head."""
    if plan.F % plan.lanes == 0:
        return x
    valid = plan.F - pl.program_id(0) * plan.lanes
    return jnp.where(_lanes(x) < valid, x, jnp.zeros_like(x))


def _select_head(x: Block, array, g: int):
    """Returns zeros for the lanes of all heads but the g-th of the block."""
    if x.plan.lanes == x.plan.K:
        return array
    lane, K = _lanes(array), x.plan.K
    return jnp.where((lane >= g * K) & (lane < (g + 1) * K), array, jnp.zeros_like(array))


def _lanes(x):
    return jax.lax.broadcasted_iota(jnp.int32, x.shape, 1)


def _multiply(a, b, kind: str = "NN"):
    """Multiplies two matrices, one of them transposed ("TN", "NT") or none, in float32."""
    contracted = (0 if kind[0] == "T" else 1,), (1 if kind[1] == "T" else 0,)
    return jax.lax.dot_general(a, b, (contracted, ((), ())), preferred_element_type=jnp.float32)


def _sum_products(pairs):
    """Sums the products of pairs of matrices, of which the first is transposed."""
    # As one product: its sums stay in the matrix unit, and are added to memory once.
    a, b = (jnp.concatenate(matrices) for matrices in zip(*pairs, strict=True))
    return _multiply(a, b, "TN")


def _column(x: Block, number: int):
    return x.queries[:, number : number + 1]


def _hide_keys(x: Block):
    """Returns 0 where a query sees a key, else a number that hides a score: [rows, J]."""
    j = jax.lax.broadcasted_iota(jnp.int32, (x.plan.rows, x.plan.J), 1)
    visible = (j >= _column(x, FIRST)) & (j < _column(x, END))
    visible &= x.keys[RANK : RANK + 1] < _column(x, BELOW)
    visible &= x.keys[KEY_GROUP : KEY_GROUP + 1] == _column(x, GROUP)
    # A number is read again for every head; a bool would first have to be made one.
    return jnp.where(visible | (j == _column(x, OWN)), 0.0, -1e30)


def _is_other_segment(x: Block):
    return x.keys[KEY_SEGMENT : KEY_SEGMENT + 1] != _column(x, SEGMENT)


def _score(x: Block, g: int) -> tuple[Any, Any, Any]:
    """Returns the scores of a head, and its scaled queries for keys and for distances."""
    scale, shift = x.plan.K**-0.5, x.plan.shift
    if not shift:
        q = _select_head(x, x.q * scale, g).astype(x.k.dtype)
        return _multiply(q, x.k, "NT"), q, None
    content, position, segment, other = (x.bias[n : n + 1] for n in range(4))
    q_content, q_position = (
        _select_head(x, (x.q + bias) * scale, g).astype(x.k.dtype) for bias in (content, position)
    )
    scores = _multiply(q_content, x.k, "NT") + _cut_rows(x, _multiply(q_position, x.r, "NT"))
    answer = _select_head(x, (x.q + segment) * scale * other, g).sum(1, keepdims=True)
    return scores + jnp.where(_is_other_segment(x), answer, 0.0), q_content, q_position


def _exponentiate(scores):
    """Returns exp(scores - their maximum), and its sum in each row, as `kernels.softmax` does."""
    # Above -1e30: in a row that sees nothing, too, hidden scores end as exp(-huge) = 0.
    top = jnp.maximum(scores.max(1, keepdims=True), -1e29)
    e = jnp.exp(scores - top)
    return e, jnp.maximum(e.sum(1, keepdims=True), 1e-30)


def _drop(x: Block, p, g: int):
    """Zeroes what `dropout_bits` drops of the whole array [B, H, P, J], and does not scale it."""
    plan = x.plan
    if not plan.rate:
        return p
    # All wrap around as uint32 does, as in `dropout_bits`.
    h = x.seeds[2] + (pl.program_id(0) * (plan.lanes // plan.K) + g).astype(jnp.uint32)
    first = (x.row * jnp.uint32(plan.H) + h) * jnp.uint32(plan.P)
    first += (pl.program_id(2) * plan.rows).astype(jnp.uint32)
    i = jax.lax.broadcasted_iota(jnp.uint32, (p.shape[0], 1), 0)
    j = jax.lax.broadcasted_iota(jnp.uint32, (1, p.shape[1]), 1)
    kept = plan.is_kept(plan.rate, (first + i) * jnp.uint32(plan.J), j, x.seeds[:2])
    return jnp.where(kept, p, 0.0)


# --- distances -----------------------------------------------------------------------------------


def _find_window(plan: Plan):
    """Returns the rows of the table of distances that a block reads."""
    if plan.shift == "slots":
        return slice(None)
    # Row i needs the J distances from L - 1 - i on, see `distance_scores.score_distances`.
    start = plan.L - (pl.program_id(2) + 1) * plan.rows
    return pl.ds(pl.multiple_of(start, plan.rows), plan.J + plan.rows)


def _cut_rows(x: Block, raw):
    """Cuts J entries from each row, from where its distances begin."""
    if x.plan.shift == "order":
        # Rolls each row by one more than the one above it: a single instruction of a TPU.
        start = raw.shape[1] - (x.plan.rows - 1)
        return pltpu.roll(raw, start, 1, stride=1, stride_axis=0)[:, : x.plan.J]
    for bit in reversed(_find_far_bits(x)):
        # As narrow as the lower bits allow: fewer registers to select.
        raw = _move_where(x, bit, raw, -1)[:, : x.plan.J + (1 << bit)]
    lane, begin = _find_lanes(x)
    return _select_neighbours(lane + begin < LANES, _turn_lanes(raw, lane + begin))


def _put_rows(x: Block, da):
    """Transposes `_cut_rows`."""
    lane, begin = _find_lanes(x)
    turned = _turn_lanes(da, lane - begin)
    zeros = jnp.zeros_like(turned[0])
    da = _select_neighbours(lane < begin, [zeros, *turned, zeros])
    for bit in _find_far_bits(x):
        da = _move_where(x, bit, _widen(da, min(x.plan.J + (2 << bit), len(x.r))), 1)
    return da


def _find_far_bits(x: Block) -> range:
    """Returns the bits of where distances begin that count whole registers."""
    return range(LANES.bit_length() - 1, (len(x.r) - x.plan.J - 1).bit_length())


def _find_start(x: Block, columns: int):
    """Returns where the distances of each row begin in the table that the block reads."""
    shape = x.plan.rows, columns
    if x.plan.shift == "order":
        return x.plan.rows - 1 - jax.lax.broadcasted_iota(jnp.int32, shape, 0)
    return jnp.broadcast_to(_column(x, START), shape)


def _find_lanes(x: Block):
    """Returns the numbers of a register's lanes, and in which of them distances begin."""
    start = _find_start(x, LANES)
    return _lanes(start), start & (LANES - 1)


def _turn_lanes(rows, source):
    """Takes for each lane, in every register of the rows, the lane of this number, mod 128."""
    take = functools.partial(jnp.take_along_axis, axis=1, mode="promise_in_bounds")
    registers = jnp.split(rows, rows.shape[1] // LANES, axis=1)
    return [take(x, source & (LANES - 1)) for x in registers]


def _select_neighbours(is_first, registers):
    """Returns rows of registers, each with lanes of two that are neighbours."""
    pairs = itertools.pairwise(registers)
    return jnp.concatenate([jnp.where(is_first, a, b) for a, b in pairs], 1)


def _move_where(x: Block, bit: int, rows, sign: int):
    """Rolls the rows, to the right for sign 1, by this bit of where their distances begin."""
    moved = pltpu.roll(rows, sign * (1 << bit) % rows.shape[1], 1)
    return jnp.where((_find_start(x, rows.shape[1]) >> bit) & 1 == 1, moved, rows)


def _widen(da, width: int):
    return jnp.concatenate([da, jnp.zeros((len(da), width - da.shape[1]), da.dtype)], 1)


def _add_relative_grads(x: Block, g: int, da, dq_content, draw, dbias_ref):
    """Adds the gradients of biases and distances, and returns their share of that of the query."""
    scale = x.plan.K**-0.5
    dq_position = _select_head(x, _multiply(draw, x.r), g) * scale
    # One number a row: the gradient with respect to the answer of all keys of other segments.
    danswer = jnp.where(_is_other_segment(x), da, 0.0).sum(1, keepdims=True) * scale
    other, segment = x.bias[OTHER : OTHER + 1], x.bias[SEGMENT_BIAS : SEGMENT_BIAS + 1]
    dq_segment = _select_head(x, danswer * other, g)
    dother = _select_head(x, danswer * (x.q + segment), g)
    grads = (dq_content, dq_position, dq_segment, dother)
    for row, grad in enumerate(grads):
        dbias_ref[row : row + 1] += grad.sum(0, keepdims=True)
    return dq_position + dq_segment
