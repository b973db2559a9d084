"""A mask in whole numbers of queries and of keys, from which a kernel tells who sees whom.

A query sees the keys from "first" up to, but not, "end", of ranks below "below", of its "group",
and the key "own".  Its distances begin at "start".  No [L, J] is written.  A view here is an
`AttentionView` of `modules.masks`.
"""

import jax.numpy as jnp

NEVER, ALWAYS = 2**31 - 1, -(2**31)  # ranks that nobody sees, and that all see


def list_needed(view) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Lists the numbers of queries and of keys by which the view hides anything, its end always."""
    fields = set(view.mask.fields())
    has_rank = bool(fields & {"rank_BL", "valid_BL", "memory_BM"})
    has_first = bool(fields & {"window", "same_length", "sees_memory_BL"})
    has_group = "groups_BL" in fields
    columns = {
        "first": has_first or view.is_banded is not None,
        "end": True,
        "below": has_rank,
        "group": has_group,
        "own": view.sees_itself,
    }
    rows = {"rank": has_rank, "key_group": has_group}
    needed = [tuple(n for n, is_needed in x.items() if is_needed) for x in (columns, rows)]
    return needed[0], needed[1]


def number_queries(view, J: int, B: int, P: int) -> dict:
    """Numbers what each query sees: int32 [B, P] by name, filled up with blind ones."""
    mask, M = view.mask, J - view.L
    position_BL = jnp.arange(view.L)[None] if view.slots_BP is None else view.slots_BP
    key_BL = position_BL + M
    first, end = jnp.zeros_like(key_BL), jnp.full_like(key_BL, J)
    if mask.is_causal:
        end = key_BL + 1
        if mask.prefix_B is not None:
            end = jnp.maximum(end, mask.prefix_B[:, None] + M)
    if mask.lengths_B is not None:
        end = jnp.minimum(end, mask.lengths_B[:, None] + M)
    if mask.window:
        first = jnp.maximum(first, key_BL - mask.window + 1)
    if mask.same_length:
        first = jnp.maximum(first, position_BL)
    if mask.sees_memory_BL is not None:
        first = jnp.where(view.at_queries(mask.sees_memory_BL), first, jnp.maximum(first, M))
    if view.is_banded is not None:
        band = jnp.maximum(first, key_BL - view.window + 1)
        first = jnp.where(view.is_banded, band, first)
        end = jnp.where(view.is_banded, jnp.minimum(end, key_BL + 1), end)
    zero = jnp.zeros_like(key_BL)
    columns = {
        "first": first,
        "end": end,
        "below": 1 if mask.rank_BL is None else view.at_queries(mask.sees_below_BL),
        "group": zero if mask.groups_BL is None else view.at_queries(mask.groups_BL),
        "own": key_BL if view.sees_itself else -1,
        "segment": zero if view.segments_BL is None else view.segments_BL,
        "start": view.L - 1 - position_BL,
    }
    shape = B, key_BL.shape[1]
    columns = {n: jnp.broadcast_to(x, shape).astype(jnp.int32) for n, x in columns.items()}
    # A query that fills up sees nothing, by an end of 0, and not itself.
    return {n: pad_rows(x, P, -1 if n == "own" else 0) for n, x in columns.items()}


def number_keys(view, J: int, B: int) -> dict:
    """Numbers what a query must match of each key: int32 [B, J] by name."""
    mask, M = view.mask, J - view.L
    behind_memory = ((0, 0), (M, 0))
    rank = jnp.zeros((B, J), jnp.int32)
    if mask.rank_BL is not None:  # the memory was read before any rank of this sequence
        rank = jnp.pad(mask.rank_BL, behind_memory, constant_values=ALWAYS)
    if mask.valid_BL is not None:
        valid = jnp.pad(mask.valid_BL, behind_memory, constant_values=True)
        rank = jnp.where(valid, rank, NEVER)
    if mask.memory_BM is not None:
        alive = jnp.pad(mask.memory_BM, ((0, 0), (0, J - M)), constant_values=True)
        rank = jnp.where(alive, rank, NEVER)
    zero = jnp.zeros((1, 1), jnp.int32)
    rows = {
        "rank": rank,
        "key_group": zero if mask.groups_BL is None else jnp.pad(mask.groups_BL, behind_memory),
        "key_segment": zero if view.segments_BJ is None else view.segments_BJ,
    }
    return {n: jnp.broadcast_to(x, (B, J)).astype(jnp.int32) for n, x in rows.items()}


def pad_rows(x_BP, P: int, value: int = 0):
    """Fills rows up to P entries."""
    pad = ((0, 0), (0, P - x_BP.shape[1])) + ((0, 0),) * (x_BP.ndim - 2)
    return jnp.pad(x_BP, pad, constant_values=value)
