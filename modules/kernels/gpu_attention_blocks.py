"""Programs of `gpu_attention`, for warpgroups of a Hopper GPU, written in Pallas Mosaic GPU.

A warpgroup has a block of queries, and walks over keys; the gradients of keys, and of distances,
have it the other way round.  Scores stay in the registers that the tensor cores leave them in, are
computed again on the way back, and never reach main memory.  Beside its plan and its arrays a
program is given what a warpgroup can do and how it scores: `gpu_warpgroup` and `gpu_scores`.
"""

import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

LEAST = -1e29  # a maximum below all scores that are seen


def run_forward(warpgroup, scoring, plan, arrays, shared, results, scratch):
    """Computes the outputs of a tile of queries, and log2 of the sums of their exponentials."""
    place, ring = warpgroup.find_place(shared), scratch.ring

    def compute():
        slots = warpgroup.fetch(warpgroup.find_queries(arrays, shared, place), scratch, place)
        columns = warpgroup.load_numbers(plan, plan.columns, slots["columns"], by_row=True)
        lse_out = scratch.extra["lse"].at[place.group]

        def step(n, carry):
            o, top, total = carry
            pair = _pair_with_keys(warpgroup, scoring, plan, slots, columns, ring, n, place)
            scores = scoring.score(warpgroup, plan, pair, scratch, place)
            new_top = jnp.maximum(top, scores.max(1))
            shrink = jnp.exp2(top - new_top)
            e = jnp.exp2(scores - warpgroup.spread(new_top, scores.shape, 0))
            total = total * shrink + e.sum(1)
            keep = scoring.decide(warpgroup, plan, pair, shared, place)
            e = e if keep is None else jnp.where(keep, e, 0.0)
            o = o * warpgroup.spread(shrink, o.shape, 0)
            v_smem = pair.keys["v"]
            o = warpgroup.multiply(plan, e.astype(v_smem.dtype), v_smem, total=o)
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
        slots["q"][...] = o.astype(slots["q"].dtype)
        lse_out[...] = top + jnp.log(total) * scoring.LOG2E
        places = warpgroup.find_rows(results, place)
        warpgroup.store((slots["q"], places["o"]), (lse_out, places["lse"]))

    block = warpgroup.list_key_blocks(plan, arrays, shared, place)
    warpgroup.run(place, ring, compute, block)


def run_queries_backward(warpgroup, scoring, plan, arrays, shared, results, scratch):
    """Computes the gradients of a tile of queries, and of their answers to segments.

    The gradient of a bias is that of the scores, which it then writes.
    """
    place, ring = warpgroup.find_place(shared), scratch.ring

    def compute():
        slots = warpgroup.fetch(warpgroup.find_queries(arrays, shared, place), scratch, place)
        columns = warpgroup.load_numbers(plan, plan.columns, slots["columns"], by_row=True)
        lse, delta = (warpgroup.load(plan, slots[name], 0) for name in ("lse", "delta"))

        def step(n, grads):
            pair = _pair_with_keys(warpgroup, scoring, plan, slots, columns, ring, n, place)
            k_smem, v_smem = pair.keys["k"], pair.keys["v"]
            scores = scoring.score(warpgroup, plan, pair, scratch, place)
            p = jnp.exp2(scores - warpgroup.spread(lse, scores.shape, 0))
            dp = warpgroup.multiply(plan, slots["do"], v_smem, is_transposed=True) * (
                1 / (1 - plan.rate)
            )
            keep = scoring.decide(warpgroup, plan, pair, shared, place)
            dp = dp if keep is None else jnp.where(keep, dp, 0.0)
            da = p * (dp - warpgroup.spread(delta, dp.shape, 0))
            da_low = da.astype(k_smem.dtype)
            grads = grads | {"dq": warpgroup.multiply(plan, da_low, k_smem, total=grads["dq"])}
            if plan.terms == "distances":
                grads |= scoring.add_term_grads(warpgroup, plan, pair, scratch, place, da, grads)
            if plan.terms == "bias":
                # The bias has been read: its place takes its gradient on the way out.
                pair.keys["bias"][...] = da_low
                keys = pl.ds((place.first + n) * plan.width, plan.width)
                where = place.row, place.head, place.block, slice(None), keys
                warpgroup.store((pair.keys["bias"], results["dbias"].at[where]))
            warpgroup.give_back(ring, n)
            return grads

        wide = warpgroup.fill(plan, (warpgroup.ROWS, plan.K), 0.0, plgpu.Layout.WGMMA)
        start = {"dq": wide}
        if plan.terms == "distances":
            narrow = warpgroup.fill(plan, (warpgroup.ROWS,), 0.0, plgpu.Layout.WGMMA.reduce(1))
            square = warpgroup.fill(plan, (warpgroup.ROWS,) * 2, 0.0, plgpu.Layout.WGMMA)
            start |= {"dq_position": wide, "danswer": narrow}
            start |= {"draw": square.astype(slots["q"].dtype)}
        grads = lax.fori_loop(0, place.count, step, start)
        grads.pop("draw", None)
        places = warpgroup.find_rows({name: results[name] for name in grads}, place)
        for name, x in grads.items():
            # The queries have been read: their gradients take their places on the way out.
            slot = slots[name[1:]]
            slot[...] = x if len(x.shape) == 1 else (x * plan.K**-0.5).astype(slot.dtype)
        warpgroup.store(*((slots[name[1:]], places[name]) for name in grads))

    block = warpgroup.list_key_blocks(plan, arrays, shared, place)
    warpgroup.run(place, ring, compute, block)


def run_keys_backward(warpgroup, scoring, plan, arrays, shared, results, scratch):
    """Computes the gradients of a tile of keys and their values: all scores are transposed."""
    place, ring = warpgroup.find_place(shared), scratch.ring
    keys = {name: arrays[name] for name in ("k", "v")}

    def compute():
        sources = warpgroup.find_rows(keys, place)
        sources |= warpgroup.find_key_numbers(shared, place, place.start, warpgroup.ROWS)
        slots = warpgroup.fetch(sources, scratch, place)
        rows = warpgroup.load_numbers(plan, plan.rows, slots.get("rows"), by_row=True)

        def step(n, carry):
            dk, dv = carry
            queries = warpgroup.take(ring, n)
            columns = warpgroup.load_numbers(plan, plan.columns, queries["columns"], by_row=False)
            parts = slots | _choose_distances(queries, place.group)
            if plan.terms == "bias":
                parts["bias_by_query"] = queries["bias_by_query"].at[place.group]
            query = (place.first + n) * warpgroup.ROWS
            j = scoring.index_keys(warpgroup, plan, place.start, (warpgroup.ROWS,) * 2, 0)
            pair = scoring.Pair(queries, parts, columns, rows, query, j, axis=1)
            scores = scoring.score(warpgroup, plan, pair, scratch, place)
            dp = warpgroup.multiply(plan, slots["v"], queries["do"], is_transposed=True)
            p_kept, da = _differentiate(warpgroup, scoring, plan, pair, shared, place, scores, dp)
            dv = warpgroup.multiply(plan, p_kept.astype(slots["v"].dtype), queries["do"], total=dv)
            dk = warpgroup.multiply(plan, da.astype(slots["k"].dtype), queries["q"], total=dk)
            warpgroup.give_back(ring, n)
            return dk, dv

        zeros = warpgroup.fill(plan, (warpgroup.ROWS, plan.K), 0.0, plgpu.Layout.WGMMA)
        dk, dv = lax.fori_loop(0, place.count, step, (zeros, zeros))
        slots["k"][...] = (dk * plan.K**-0.5).astype(slots["k"].dtype)
        slots["v"][...] = (dv * (1 / (1 - plan.rate))).astype(slots["v"].dtype)
        places = warpgroup.find_rows(results, place)
        warpgroup.store((slots["k"], places["dk"]), (slots["v"], places["dv"]))

    def block(n):
        start = (place.first + n) * warpgroup.ROWS
        parts = warpgroup.find_queries(arrays, shared, place, start)
        if plan.terms == "distances":
            first = plan.height - warpgroup.ROWS - start + place.tile * warpgroup.TILE
            parts["distances"] = warpgroup.find_distances(arrays, shared, place, first)
        if plan.terms == "bias":
            parts["bias_by_query"] = [
                arrays["bias"].at[place.row, place.head, place.first + n, :, x]
                for x in warpgroup.split_tile(place)
            ]
        return parts

    warpgroup.run(place, ring, compute, block)


def run_distances_backward(warpgroup, scoring, plan, arrays, shared, results, scratch):
    """Computes the gradients of a tile of distances, for each row its own.

    A block of queries has a block of distances with parts of two blocks of keys.  Scores are
    transposed and taken from both: those of key j with query i from the first where j > i, from the
    second elsewhere.
    """
    place, ring, ROWS = warpgroup.find_place(shared), scratch.ring, warpgroup.ROWS
    table = shared.tables_B[place.row]

    def compute():
        r_ref = arrays["r"].at[table, pl.ds(place.start, ROWS), place.head]
        slots = warpgroup.fetch({"r": r_ref}, scratch, place)
        memory = scratch.extra["roll"].at[place.group]

        def step(n, dr):
            queries = warpgroup.take(ring, n)
            columns = warpgroup.load_numbers(plan, plan.columns, queries["columns"], by_row=False)
            j, i = (warpgroup.iota(plan, jnp.int32, (ROWS, ROWS), axis) for axis in (0, 1))
            is_first = j > i
            both = [
                {name: queries[name].at[place.group + m] for name in ("k", "v", "rows")}
                for m in range(2)
            ]

            def choose(of_first, of_second):
                return jnp.where(is_first, of_first, of_second)

            def multiply(keys: str, name: str):
                products = (
                    warpgroup.multiply(plan, x[keys], queries[name], is_transposed=True)
                    for x in both
                )
                return choose(*products)

            first, second = (_spread_numbers(warpgroup, plan, x["rows"]) for x in both)
            rows = {name: choose(first[name], second[name]) for name in plan.rows}
            query = (place.first + n) * ROWS
            key = place.start - plan.height + query + j + jnp.where(is_first, 0, ROWS)
            pair = scoring.Pair(queries, slots, columns, rows, query, key, axis=1)
            raw = warpgroup.multiply(plan, slots["r"], queries["q_position"], is_transposed=True)
            raw = plan.exchange.roll(plan, raw, memory, axis=0)
            scores = (raw + multiply("k", "q")) * (scoring.LOG2E * plan.K**-0.5)
            scores += scoring.answer_segments(warpgroup, plan, pair, scores.shape)
            scores = scoring.hide(warpgroup, plan, pair, scores)
            # The first and the last distances have a block outside the keys.
            scores = jnp.where(key >= 0, scores, scoring.HIDDEN)
            dp = multiply("v", "do")
            _, da = _differentiate(warpgroup, scoring, plan, pair, shared, place, scores, dp)
            draw = plan.exchange.roll(plan, da, memory, axis=0, is_back=True).astype(
                slots["r"].dtype
            )
            dr = warpgroup.multiply(plan, draw, queries["q_position"], total=dr)
            warpgroup.give_back(ring, n)
            return dr

        start = warpgroup.fill(plan, (ROWS, plan.K), 0.0, plgpu.Layout.WGMMA)
        dr = lax.fori_loop(0, place.count, step, start)
        slots["r"][...] = (dr * plan.K**-0.5).astype(slots["r"].dtype)
        warpgroup.store((slots["r"], warpgroup.find_rows(results, place)["dr"]))

    def block(n):
        start = (place.first + n) * ROWS
        parts = warpgroup.find_queries(arrays, shared, place, start)
        keys = {name: arrays[name] for name in ("k", "v")}
        first = place.tile * warpgroup.TILE - plan.height + start
        starts = [first + m * ROWS for m in range(warpgroup.PARTS)]
        starts = [jnp.clip(x, 0, plan.J - ROWS) for x in starts]
        at_starts = [
            warpgroup.find_rows(keys, place, x, ROWS)
            | warpgroup.find_key_numbers(shared, place, x, ROWS)
            for x in starts
        ]
        return parts | {name: [x[name] for x in at_starts] for name in at_starts[0]}

    warpgroup.run(place, ring, compute, block)


def _pair_with_keys(warpgroup, scoring, plan, slots, columns, ring, n, place):
    """Waits for a block of keys, and pairs this warpgroup's queries with them."""
    keys = warpgroup.take(ring, n)
    rows = warpgroup.load_numbers(plan, plan.rows, keys.get("rows"), by_row=False)
    keys |= _choose_distances(keys, 1 - place.group)
    if "bias" in keys:
        keys["bias"] = keys["bias"].at[place.group]
    first, shape = (place.first + n) * plan.width, (warpgroup.ROWS, plan.width)
    j = scoring.index_keys(warpgroup, plan, first, shape, 1)
    return scoring.Pair(slots, keys, columns, rows, place.start, j, axis=0, step=n)


def _spread_numbers(warpgroup, plan, rows_ref) -> dict:
    """Loads the numbers of a block of keys, for each score of them: by name."""
    numbers = warpgroup.load_numbers(plan, plan.rows, rows_ref, by_row=True)
    shape = (warpgroup.ROWS, warpgroup.ROWS)
    return {name: warpgroup.spread(number, shape, 0) for name, number in numbers.items()}


def _choose_distances(parts: dict, first) -> dict:
    """Chooses two parts of the distances, those of a warpgroup."""
    if "distances" not in parts:
        return {}
    return {"distances": [parts["distances"].at[first + n] for n in range(2)]}


def _differentiate(warpgroup, scoring, plan, pair, shared, place, scores, dp):
    """Computes the kept probabilities of transposed scores, and the scores' gradients."""
    lse, delta = (
        warpgroup.spread(warpgroup.load(plan, pair.queries[name], 1), scores.shape, 1)
        for name in ("lse", "delta")
    )
    p = jnp.exp2(scores - lse)
    keep = scoring.decide(warpgroup, plan, pair, shared, place)
    p_kept = p if keep is None else jnp.where(keep, p, 0.0)
    return p_kept, p_kept * dp * (1 / (1 - plan.rate)) - p * delta
