"""Programs of `gpu_attention`, for warpgroups of a Hopper GPU, written in Pallas Mosaic GPU.

A warpgroup has a block of queries, and walks over keys; the gradients of keys have it the other way
round.  Scores stay in the registers that the tensor cores leave them in, are computed again on the
way back, and never reach main memory.  A program is given what a warpgroup can do, the module
`gpu_warpgroup`, beside its plan and its arrays.
"""

import math

import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

LOG2E = math.log2(math.e)
HIDDEN, LEAST = -1e30, -1e29  # a score that nobody sees, and one below all that are seen


def run_forward(warpgroup, plan, q_ref, k_ref, v_ref, shared, results, scratch):
    """Computes the outputs of a tile of queries, and log2 of the sums of their exponentials."""
    (o_ref, lse_ref), (ring, own, ready, lse_smem) = results, scratch
    place = warpgroup.find_place(shared)

    def compute():
        slots = [x.at[place.group] for x in own]
        q_smem, lse_out = slots[0], lse_smem.at[place.group]
        warpgroup.fetch(
            warpgroup.list_query_blocks([q_ref], shared, place), slots, ready.at[place.group]
        )
        columns = warpgroup.load_numbers(plan, plan.columns, slots[-1], by_row=True)

        def step(n, carry):
            o, top, total = carry
            k_smem, v_smem, bias_smem, keys = _take_keys(warpgroup, plan, ring, n, place)
            first = (place.first + n) * warpgroup.TILE
            scores = _score(
                warpgroup, plan, q_smem, k_smem, columns, keys, first, query_axis=0, bias=bias_smem
            )
            new_top = jnp.maximum(top, scores.max(1))
            shrink = jnp.exp2(top - new_top)
            e = jnp.exp2(scores - warpgroup.spread(new_top, scores.shape, 0))
            total = total * shrink + e.sum(1)
            e = _drop(warpgroup, plan, e, shared, place, place.start, first, query_axis=0)
            o = o * warpgroup.spread(shrink, o.shape, 0)
            o = warpgroup.multiply(plan, e.astype(v_ref.dtype), v_smem, total=o)
            warpgroup.give_back(ring, n)
            return o, new_top, total

        start = (
            warpgroup.fill(plan, (warpgroup.ROWS, plan.K), 0.0, plgpu.Layout.WGMMA),
            warpgroup.fill(plan, (warpgroup.ROWS,), LEAST, plgpu.Layout.WGMMA.reduce(1)),
            warpgroup.fill(plan, (warpgroup.ROWS,), 0.0, plgpu.Layout.WGMMA.reduce(1)),
        )
        o, top, total = lax.fori_loop(0, place.count, step, start)
        # Divided behind the product, where there are few numbers.
        total = jnp.maximum(total, 1e-30)
        o *= warpgroup.spread(1 / (total * (1 - plan.rate)), o.shape, 0)
        q_smem[...] = o.astype(o_ref.dtype)
        lse_out[...] = top + jnp.log(total) * LOG2E
        rows = pl.ds(place.start, warpgroup.ROWS)
        warpgroup.store(
            (q_smem, o_ref.at[place.row, rows, place.head]),
            (lse_out, lse_ref.at[place.row, place.head, rows]),
        )

    warpgroup.run(place, ring, compute, warpgroup.list_key_blocks(k_ref, v_ref, shared, place))


def run_queries_backward(warpgroup, plan, q_ref, k_ref, v_ref, shared, grads, results, scratch):
    """Computes the gradients of a tile of queries.

    With a bias, whose gradient is that of the scores, it writes these and the probabilities that
    are kept, too: those of keys and values are products of them.
    """
    (dq_ref, *written), (ring, own, ready, *buffers) = results, scratch
    place = warpgroup.find_place(shared)

    def compute():
        slots = [x.at[place.group] for x in own]
        q_smem, do_smem, lse_smem, delta_smem, columns_smem = slots
        arrays = [q_ref, *grads]
        warpgroup.fetch(
            warpgroup.list_query_blocks(arrays, shared, place), slots, ready.at[place.group]
        )
        columns = warpgroup.load_numbers(plan, plan.columns, columns_smem, by_row=True)
        lse, delta = (warpgroup.load(plan, x, 0) for x in (lse_smem, delta_smem))

        def step(n, dq):
            k_smem, v_smem, bias_smem, numbers = _take_keys(warpgroup, plan, ring, n, place)
            first = (place.first + n) * warpgroup.TILE
            scores = _score(
                warpgroup,
                plan,
                q_smem,
                k_smem,
                columns,
                numbers,
                first,
                query_axis=0,
                bias=bias_smem,
            )
            p = jnp.exp2(scores - warpgroup.spread(lse, scores.shape, 0))
            dp = warpgroup.multiply(plan, do_smem, v_smem, is_transposed=True) * (
                1 / (1 - plan.rate)
            )
            kept = _decide(
                warpgroup, plan, dp.shape, shared, place, place.start, first, query_axis=0
            )
            dp = dp if kept is None else jnp.where(kept, dp, 0.0)
            da = (p * (dp - warpgroup.spread(delta, dp.shape, 0))).astype(k_ref.dtype)
            dq = warpgroup.multiply(plan, da, k_smem, total=dq)
            if written:
                # The bias has been read: its place takes its gradient on the way out.
                p_kept = p if kept is None else jnp.where(kept, p, 0.0)
                bias_smem[...], p_smem = da, buffers[0].at[place.group]
                p_smem[...] = p_kept.astype(k_ref.dtype)
                where = (
                    place.row,
                    place.head,
                    place.block,
                    slice(None),
                    pl.ds(first, warpgroup.TILE),
                )
                targets = [x.at[where] for x in written]
                warpgroup.store(*zip((bias_smem, p_smem), targets, strict=True))
            warpgroup.give_back(ring, n)
            return dq

        start = warpgroup.fill(plan, (warpgroup.ROWS, plan.K), 0.0, plgpu.Layout.WGMMA)
        dq = lax.fori_loop(0, place.count, step, start)
        q_smem[...] = (dq * plan.K**-0.5).astype(dq_ref.dtype)
        warpgroup.store(
            (q_smem, dq_ref.at[place.row, pl.ds(place.start, warpgroup.ROWS), place.head])
        )

    warpgroup.run(place, ring, compute, warpgroup.list_key_blocks(k_ref, v_ref, shared, place))


def run_keys_backward(warpgroup, plan, q_ref, k_ref, v_ref, shared, grads, results, scratch):
    """Computes the gradients of a tile of keys and their values: all scores are transposed."""
    (dk_ref, dv_ref), (ring, own, ready) = results, scratch
    place = warpgroup.find_place(shared)
    rows = pl.ds(place.start, warpgroup.ROWS)
    places = [x.at[place.row, rows, place.head] for x in (k_ref, v_ref)]

    def compute():
        slots = [x.at[place.group] for x in own]
        k_smem, v_smem, *rest = slots
        keys_ref = [] if shared.keys_BnJ is None else [shared.keys_BnJ.at[place.row, :, rows]]
        warpgroup.fetch([*places, *keys_ref], slots, ready.at[place.group])
        keys = warpgroup.load_numbers(plan, plan.rows, *rest, by_row=True)

        def step(n, carry):
            dk, dv = carry
            q_smem, do_smem, lse_smem, delta_smem, columns_smem = warpgroup.take(ring, n)
            query = (place.first + n) * warpgroup.ROWS
            columns = warpgroup.load_numbers(plan, plan.columns, columns_smem, by_row=False)
            scores = _score(
                warpgroup, plan, k_smem, q_smem, columns, keys, place.start, query_axis=1
            )
            p = jnp.exp2(
                scores - warpgroup.spread(warpgroup.load(plan, lse_smem, 1), scores.shape, 1)
            )
            dp = warpgroup.multiply(plan, v_smem, do_smem, is_transposed=True)
            kept = _decide(
                warpgroup, plan, p.shape, shared, place, query, place.start, query_axis=1
            )
            p_kept = p if kept is None else jnp.where(kept, p, 0.0)
            dv = warpgroup.multiply(plan, p_kept.astype(v_ref.dtype), do_smem, total=dv)
            delta = warpgroup.spread(warpgroup.load(plan, delta_smem, 1), dp.shape, 1)
            da = p_kept * dp * (1 / (1 - plan.rate)) - p * delta
            dk = warpgroup.multiply(plan, da.astype(q_ref.dtype), q_smem, total=dk)
            warpgroup.give_back(ring, n)
            return dk, dv

        zeros = warpgroup.fill(plan, (warpgroup.ROWS, plan.K), 0.0, plgpu.Layout.WGMMA)
        dk, dv = lax.fori_loop(0, place.count, step, (zeros, zeros))
        k_smem[...] = (dk * plan.K**-0.5).astype(dk_ref.dtype)
        v_smem[...] = (dv * (1 / (1 - plan.rate))).astype(dv_ref.dtype)
        targets = [x.at[place.row, rows, place.head] for x in (dk_ref, dv_ref)]
        warpgroup.store(*zip((k_smem, v_smem), targets, strict=True))

    def block(n):
        return warpgroup.list_query_blocks(
            [q_ref, *grads], shared, place, (place.first + n) * warpgroup.ROWS
        )

    warpgroup.run(place, ring, compute, block)


# --- a block's mathematics -----------------------------------------------------------------------


def _take_keys(warpgroup, plan, ring, n, place):
    """Waits for a block of keys: (keys, values, this warpgroup's bias or None, their numbers)."""
    k_smem, v_smem, *rest = warpgroup.take(ring, n)
    bias_smem = rest.pop(0).at[place.group] if plan.has_bias else None
    return k_smem, v_smem, bias_smem, warpgroup.load_numbers(plan, plan.rows, *rest, by_row=False)


def _score(warpgroup, plan, x_smem, y_smem, columns, keys, first_key, query_axis: int, bias=None):
    """Computes the scores of x and y in bits, HIDDEN where a query does not see the key."""
    scores = warpgroup.multiply(plan, x_smem, y_smem, is_transposed=True)
    scores *= LOG2E * plan.K**-0.5
    if bias is not None:
        scores += warpgroup.load_block(plan, bias) * LOG2E
    return _hide(warpgroup, plan, scores, columns, keys, first_key, query_axis)


def _hide(warpgroup, plan, scores, columns: dict, keys: dict, first_key, query_axis: int):
    """Returns HIDDEN for the scores of keys that a query does not see."""
    shape = scores.shape
    query = {n: warpgroup.spread(x, shape, query_axis) for n, x in columns.items()}
    key = {n: warpgroup.spread(x, shape, 1 - query_axis) for n, x in keys.items()}
    j = warpgroup.iota(plan, jnp.int32, shape, 1 - query_axis) + first_key
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


def _drop(warpgroup, plan, x, shared, place, query, key, query_axis: int):
    """Zeroes what `dropout_bits` drops of the whole array [B, H, P, J], and does not scale it."""
    kept = _decide(warpgroup, plan, x.shape, shared, place, query, key, query_axis)
    return x if kept is None else jnp.where(kept, x, 0.0)


def _decide(warpgroup, plan, shape, shared, place, query, key, query_axis: int):
    if not plan.rate:
        return None
    # All wrap around as uint32 does, as in `dropout_bits`.
    row, head = shared.rows_B[place.row], shared.heads_H[place.head]
    first = (row * jnp.uint32(plan.H) + head) * jnp.uint32(plan.P) + query.astype(jnp.uint32)
    i, j = (warpgroup.iota(plan, jnp.uint32, shape, axis) for axis in (query_axis, 1 - query_axis))
    position = (first + i) * jnp.uint32(plan.J) + (j + key.astype(jnp.uint32))
    return plan.is_kept(plan.rate, position, [shared.words_2[n] for n in range(2)])
