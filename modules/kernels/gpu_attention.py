"""Attention by a kernel for Hopper GPUs that drops probabilities by the same hash as everywhere.

It writes nothing of [L, J], and the backward pass computes the scores again.  Only where queries of
a few slots have distances to their keys are those scores XLA's: they are added as a bias, whose
gradient XLA is given.  The kernel is compiled for GPUs, and its results are tested on a CPU; it has
not run on a GPU.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from modules.activation_sharding import choose_form, find_device, map_shards, num_shards
from modules.kernels import (
    dropout_bits,
    gpu_attention_blocks,
    gpu_calls,
    gpu_exchange,
    gpu_scores,
    gpu_warpgroup,
    mask_numbers,
)
from modules.kernels.gpu_calls import Numbers
from modules.kernels.gpu_warpgroup import ROWS, TILE, Plan
from modules.masks import AttentionView

NAME = "the Hopper GPU's kernel"
WIDTHS = 64, 128  # of heads
HOPPER = "9.0"
KIT = gpu_calls.Kit(gpu_attention_blocks, gpu_scores, gpu_warpgroup)


def refusal(q_BPHK, k_BJHK, v_BJHK, view: AttentionView, relative, dropout) -> str:
    """Says why the kernel does not take these; "": it does."""
    (B, P, H, K), J, device = q_BPHK.shape, k_BJHK.shape[1], find_device()
    if device.platform == "gpu":
        if str(getattr(device, "compute_capability", "")) != HOPPER:
            return "our kernel is for Hopper GPUs"
        if any(x.dtype not in (jnp.bfloat16, jnp.float16) for x in (q_BPHK, k_BJHK, v_BJHK)):
            return "our kernel is in half precision"
    if P == 1 or J % TILE:
        return f"our kernel takes more than one query and a multiple of {TILE} keys"
    if K not in WIDTHS:
        return f"our kernel's heads are {' or '.join(map(str, WIDTHS))} wide"
    if view.mask.visible_BLJ is not None:
        return "the mask is written out"
    if B % num_shards("B") or H % num_shards("H"):
        return "rows or heads do not divide over the devices"
    return ""


def attend(q_BPHK, k_BJHK, v_BJHK, view: AttentionView, relative, dropout):
    """Computes `attention.reference`."""
    (B, P, H, K), J = q_BPHK.shape, k_BJHK.shape[1]
    rate, words = (0.0, jnp.zeros(2, jnp.uint32)) if dropout is None else dropout
    is_kept = choose_form(dropout_bits.POSITION_FORMS)
    is_interpreted = find_device().platform != "gpu"
    terms = _choose_terms(q_BPHK, view, relative)
    names, more = mask_numbers.list_needed(view), terms == "distances"
    needed = names[0] + ("segment",) * more, names[1] + ("key_segment",) * more
    plan = Plan(P, J, K, H, rate, is_kept, *needed, is_interpreted, terms, gpu_exchange)
    # Filled up with queries that see nothing.
    columns = mask_numbers.number_queries(view, J, B, plan.height)
    rows = mask_numbers.number_keys(view, J, B)
    numbers = Numbers(
        jnp.arange(B, dtype=jnp.uint32),
        jnp.arange(H, dtype=jnp.uint32),
        words,
        *find_blocks(columns, rows, plan),
        jnp.stack([columns[n] for n in plan.columns], 1),
        jnp.stack([rows[n] for n in plan.rows], 1) if plan.rows else None,
    )
    arrays = {"q": q_BPHK, "k": k_BJHK, "v": v_BJHK}
    if terms == "bias":
        arrays |= _make_bias(plan, q_BPHK, view, relative)
    if terms == "distances":
        arrays |= _make_distances(plan, q_BPHK, relative)
        tables_B = relative.backward_B
        if relative.r.ndim == 3:
            tables_B = jnp.zeros(B, jnp.int32)
        numbers = numbers._replace(
            tables_B=None if tables_B is None else tables_B.astype(jnp.int32),
            distance_blocks_BT2=_find_distance_blocks(plan, B),
        )
    arrays["q"] = mask_numbers.pad_rows(arrays["q"], plan.height)
    return _attend(plan, arrays, numbers)[:, :P]


def _choose_terms(q_BPHK, view: AttentionView, relative) -> str:
    """Says how scores of distances and segments are added, see `gpu_warpgroup.Plan`."""
    if relative is None:
        return ""
    # Wider heads, with the distances of all, do not fit into shared memory.
    is_in_order = view.slots_BP is None and q_BPHK.shape[1] % ROWS == 0
    return "distances" if is_in_order and q_BPHK.shape[3] == 64 else "bias"


def _make_bias(plan: Plan, q_BPHK, view: AttentionView, relative) -> dict:
    """Makes queries for keys alone, and what is added to their scores."""
    B, P, H, _ = q_BPHK.shape
    bias_BHPJ = relative.score(q_BPHK, view).astype(q_BPHK.dtype)
    bias_BHPJ = jnp.pad(bias_BHPJ, ((0, 0), (0, 0), (0, plan.height - P), (0, 0)))
    return {
        "q": (q_BPHK + relative.content_HK).astype(q_BPHK.dtype),
        "bias": bias_BHPJ.reshape(B, H, plan.height // ROWS, ROWS, plan.J),
    }


def _make_distances(plan: Plan, q_BPHK, relative) -> dict:
    """Makes queries for keys and for distances, their answers to segments, and distances."""
    add = lambda x_HK: (q_BPHK + x_HK).astype(q_BPHK.dtype)  # noqa: E731
    answer_BHP = relative.answer_segments(q_BPHK).astype(jnp.float32)
    fill = plan.height - plan.P
    r = relative.r if relative.r.ndim == 4 else relative.r[None]
    return {
        "q": add(relative.content_HK),
        "q_position": mask_numbers.pad_rows(add(relative.position_HK), plan.height),
        "answer": jnp.pad(answer_BHP, ((0, 0), (0, 0), (0, fill))),
        # Those that fill up are further on than all others: their distances are further back.
        "r": jnp.pad(r, ((0, 0), (fill, 0), (0, 0), (0, 0))),
    }


# --- which blocks a tile needs --------------------------------------------------------------------


def find_blocks(columns: dict, rows: dict, plan: Plan) -> tuple[Any, Any]:
    """Finds the blocks that hold all that a tile sees, or by which it is seen: [B, T, 2] each.

    Returns:
        (blocks of keys by tile of queries, blocks of queries by tile of keys); a first block, and
        the one behind the last.
    """
    by_query = _find_spans(_find_pairs(columns, rows, plan, TILE, plan.width))
    if plan.terms == "bias":
        # Each block of the bias has a gradient to be written, if only zeros.
        by_query = jnp.broadcast_to(jnp.array([0, plan.J // plan.width], jnp.int32), by_query.shape)
    return by_query, _find_spans(_find_pairs(columns, rows, plan, ROWS, TILE).swapaxes(1, 2))


def _find_pairs(columns: dict, rows: dict, plan: Plan, height: int, width: int):
    """Finds which blocks of queries see anything of which of keys, or might: [B, Q, T]."""
    split = lambda x, size: x.reshape(x.shape[0], -1, size)  # noqa: E731
    low, high = ({n: f(split(x, height), 2)[..., None] for n, x in columns.items()} for f in EDGES)
    key_low, key_high = (
        {n: f(split(x, width), 2)[:, None] for n, x in rows.items()} for f in EDGES
    )
    start = jnp.arange(plan.J // width) * width
    pairs = (high["end"] > start) & (low["first"] < start + width)
    pairs &= high["below"] > key_low["rank"]
    group, key_group = "group", "key_group"
    pairs &= (high[group] >= key_low[key_group]) & (low[group] <= key_high[key_group])
    return pairs | ((high["own"] >= start) & (low["own"] < start + width))


EDGES = (jnp.min, jnp.max)


def _find_spans(pairs_BTn):
    """Finds the first block that a tile needs, and the one behind the last: int32 [B, T, 2]."""
    n = pairs_BTn.shape[2]
    first = jnp.argmax(pairs_BTn, 2)
    end = jnp.where(pairs_BTn.any(2), n - jnp.argmax(pairs_BTn[..., ::-1], 2), first)
    return jnp.stack([first, end], 2).astype(jnp.int32)


def _find_distance_blocks(plan: Plan, B: int):
    """Finds the blocks of queries that have a tile of distances to any key: int32 [B, T, 2]."""
    queries, keys = plan.height // ROWS, plan.J // ROWS
    tile = jnp.arange((plan.height + plan.J) // TILE)
    # Query block n and the tile's first distance meet in key block 2 tile - queries + n.
    start = queries - tile * (TILE // ROWS)
    spans_T2 = jnp.stack([jnp.maximum(start - 2, 0), jnp.minimum(start + keys, queries)], 1)
    return jnp.broadcast_to(spans_T2, (B, *spans_T2.shape)).astype(jnp.int32)


# --- on every device ------------------------------------------------------------------------------

LETTERS = Numbers("B", "H", "_", "B__", "B__", "B__", "B__", "B", "B__")
ARRAY_LETTERS = {3: "BH_", 4: "B_H_", 5: "BH___"}


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _attend(plan: Plan, arrays: dict, numbers: Numbers):
    return _forward(plan, arrays, numbers)[0]


def _forward(plan: Plan, arrays: dict, numbers: Numbers):
    results = ["B_H_", "BH_"]
    o_BPHK, lse_BHP = _call(gpu_calls.run_forward, plan, arrays, numbers, results)
    return o_BPHK, (arrays, numbers, o_BPHK, lse_BHP)


def _backward(plan: Plan, residuals, do_BPHK):
    arrays, numbers, o_BPHK, lse_BHP = residuals
    # What the softmax's Jacobian takes from each gradient of a row.
    products = o_BPHK.astype(jnp.float32) * do_BPHK.astype(jnp.float32)
    delta_BHP = products.sum(3).swapaxes(1, 2)
    do_BPHK = do_BPHK.astype(o_BPHK.dtype)
    operands = arrays | {"do": do_BPHK, "lse": lse_BHP, "delta": delta_BHP}
    call = functools.partial(_call, gpu_calls.run_backward, plan, operands, numbers)
    if plan.terms == "":
        return dict(zip(("q", "k", "v"), call(["B_H_"] * 3), strict=True)), None
    if plan.terms == "bias":
        grads = call(["B_H_", "BH___", "B_H_", "B_H_"])
        return dict(zip(("q", "bias", "k", "v"), grads, strict=True)), None
    names = ("q", "q_position", "answer", "k", "v", "r")
    grads = call(["BH_" if name == "answer" else "B_H_" for name in names])
    by_name = dict(zip(names, grads, strict=True))
    if numbers.tables_B is None:
        return by_name, None
    # Each row has made a gradient of its own of the table that it read.
    is_read_BZ = jax.nn.one_hot(numbers.tables_B, len(arrays["r"]), dtype=by_name["r"].dtype)
    total = jnp.einsum(
        "BZ,BRHK->ZRHK", is_read_BZ, by_name["r"], preferred_element_type=jnp.float32
    )
    return by_name | {"r": total.astype(arrays["r"].dtype)}, None


_attend.defvjp(_forward, _backward)


def _call(run: Callable, plan: Plan, arrays: dict, numbers: Numbers, results: list[str]) -> Any:
    """Calls the kernel on every device, for its rows and heads."""
    leaves, tree = jax.tree.flatten((numbers, arrays))
    pairs = zip(numbers, LETTERS, strict=True)
    letters = Numbers(*(None if x is None else y for x, y in pairs))
    of_arrays = {name: ARRAY_LETTERS[x.ndim] for name, x in arrays.items()}
    if numbers.tables_B is not None:  # which are whole on every device
        of_arrays["r"] = "__H_"

    def call(*leaves):
        numbers, arrays = jax.tree.unflatten(tree, leaves)
        if plan.terms == "distances" and numbers.tables_B is None:  # each row has its own
            numbers = numbers._replace(tables_B=jnp.arange(len(arrays["r"])))
        return run(KIT, plan, numbers, arrays)

    return map_shards(call, leaves, jax.tree.leaves((letters, of_arrays)), results)
