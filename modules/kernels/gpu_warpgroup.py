"""Runs a warpgroup of a Hopper GPU for `gpu_attention`, in Pallas Mosaic GPU.

Two warpgroups compute, each on a block of its own, and a third brings in what they walk over: a
ring of a few stages in shared memory.
"""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

ROWS = 64  # of a warpgroup: the height of the tensor cores' instruction
GROUPS = 2  # warpgroups that compute
TILE = ROWS * GROUPS
PARTS = GROUPS + 1  # blocks of distances, or of keys, that all of them need of a step
STAGES = 2
# JAX before 0.12 wants an index of what is loaded, later ones take none.
WHOLE = ((),) if "idx" in inspect.signature(plgpu.load).parameters else ()
PITCH = 72  # of a block that is rolled: rows that are read together lie in different banks


class Plan(NamedTuple):
    """Sizes of a call, known before it is compiled.

    Attributes:
        P, J, K: queries, keys, and the width of a head.
        H: heads of the whole model.
        rate: of dropout.
        is_kept: (rate, position, words) -> bool, see `dropout_bits`.
        columns, rows: numbers of queries and of keys that a mask needs, see `mask_numbers`.
        is_interpreted: computed step by step, on a machine without a GPU.
        terms: added to each score: "": none; "bias": a number that is given; "distances": what a
            query has with the distance to a key, and with the key's segment.
        exchange: `gpu_exchange`.
    """

    P: int
    J: int
    K: int
    H: int
    rate: float
    is_kept: Callable
    columns: tuple[str, ...]
    rows: tuple[str, ...]
    is_interpreted: bool
    terms: str = ""
    exchange: Any = None

    @property
    def height(self) -> int:
        """Returns the queries with those that fill up the last tile."""
        return -(-self.P // TILE) * TILE

    @property
    def width(self) -> int:
        """Returns the keys that a warpgroup with queries takes at a time."""
        return ROWS if self.terms == "distances" else TILE


class Shared(NamedTuple):
    """Arrays in main memory that all programs read.

    Attributes:
        rows_B, heads_H: of the whole batch and model, from which dropout counts, uint32.
        words_2: of dropout, uint32.
        blocks_BT2: the first block that a tile needs, and the one behind the last.
        queries_BnP: the plan's columns.
        keys_BnJ: the plan's rows; None: it has none.
        tables_B: which table of distances a row reads; None: there is none.
    """

    rows_B: Any
    heads_H: Any
    words_2: Any
    blocks_BT2: Any
    queries_BnP: Any
    keys_BnJ: Any = None
    tables_B: Any = None


class Place(NamedTuple):
    """A program's place in the grid, and the blocks that it walks over.

    Attributes:
        row, head: of this device.
        tile: of queries; in other programs of keys, or of distances.
        group: this warpgroup.
        first, count: blocks to walk over.
    """

    row: Any
    head: Any
    tile: Any
    group: Any
    first: Any
    count: Any

    @property
    def start(self):
        """Returns the first row of this warpgroup."""
        return self.tile * TILE + self.group * ROWS

    @property
    def block(self):
        """Returns this warpgroup's number among all blocks of ROWS."""
        return self.tile * GROUPS + self.group


class Ring(NamedTuple):
    """Stages of shared memory that one warpgroup fills and others read.

    Attributes:
        buffers: by name, each [STAGES, ...].
        full, empty: barriers of each stage.
    """

    buffers: Mapping[str, Any]
    full: Any
    empty: Any


class Scratch(NamedTuple):
    """Shared memory and barriers of a program.

    Attributes:
        ring: of what goes around.
        own: what each warpgroup keeps, by name, each [GROUPS, ...].
        ready: the barrier of each warpgroup's own.
        extra: memory of each warpgroup that nothing is brought to, by name.
    """

    ring: Ring
    own: Mapping[str, Any]
    ready: Any
    extra: Mapping[str, Any]


# --- instructions ---------------------------------------------------------------------------------
# The interpreter knows neither layouts of registers nor the tensor cores' transposed operands.


def multiply(plan: Plan, left, right, is_transposed: bool = False, total=None):
    """Multiplies on the tensor cores, in float32, and adds to a total if there is one.

    Args:
        left: in shared memory, or in registers.
        right: in shared memory, to be transposed or not.
    """
    if plan.is_interpreted:
        right = right[...].T if is_transposed else right[...]
        product = jnp.dot(left[...], right, precision="highest", preferred_element_type=jnp.float32)
        return product if total is None else total + product
    width = right.shape[0 if is_transposed else 1]
    right = plgpu.transpose_ref(right, (1, 0)) if is_transposed else right

    def multiply(sum_ref):
        plgpu.wgmma(sum_ref, left, right)
        return sum_ref[...] if total is None else None

    if total is None:
        return pl.run_scoped(multiply, plgpu.ACC((left.shape[0], width), jnp.float32))
    return pl.run_state(multiply)(plgpu.ACC.init(total))


def iota(plan: Plan, dtype, shape, axis: int):
    if plan.is_interpreted:
        return lax.broadcasted_iota(dtype, shape, axis)
    return plgpu.broadcasted_iota(dtype, shape, axis, layout=plgpu.Layout.WGMMA)


def fill(plan: Plan, shape, value: float, layout):
    x = jnp.full(shape, value, jnp.float32)
    return x if plan.is_interpreted else plgpu.layout_cast(x, layout)


def load(plan: Plan, ref, axis: int):
    """Loads a number for each row (axis 0) or column of a block of scores."""
    layout = plgpu.Layout.WGMMA.reduce(1 - axis)
    return ref[...] if plan.is_interpreted else plgpu.load(ref, *WHOLE, layout=layout)


def load_block(plan: Plan, ref):
    """Loads a block of scores, as float32."""
    x = ref[...] if plan.is_interpreted else plgpu.load(ref, *WHOLE, layout=plgpu.Layout.WGMMA)
    return x.astype(jnp.float32)


def load_numbers(plan: Plan, names, ref=None, *, by_row: bool) -> dict:
    axis = 0 if by_row else 1
    return {name: load(plan, ref.at[n], axis) for n, name in enumerate(names)}


def spread(x, shape, axis: int):
    return lax.broadcast_in_dim(x, shape, [axis])


# --- to and from main memory ---------------------------------------------------------------------


def find_place(shared: Shared) -> Place:
    """Returns where this program is."""
    row, head, tile, group = (lax.axis_index(n) for n in ("row", "head", "tile", "group"))
    first, end = (shared.blocks_BT2[row, tile, n] for n in range(2))
    return Place(row, head, tile, group, first, end - first)


def run(place: Place, ring: Ring, compute: Callable[[], None], block: Callable) -> None:
    """Computes in the first warpgroups, and fills the ring in the last.

    Args:
        block: the parts of the n-th block, by name as the ring's buffers; a list of some that lie
            behind each other in a buffer.
    """

    @pl.when(place.group < GROUPS)
    def _():
        plgpu.set_max_registers(240, action="increase")
        compute()

    @pl.when(place.group == GROUPS)
    def _():
        plgpu.set_max_registers(24, action="decrease")

        @pl.loop(0, place.count)
        def _(n):
            slot = lax.rem(n, STAGES)

            @pl.when(n >= STAGES)
            def _():
                plgpu.barrier_wait(ring.empty.at[slot])

            for name, source in block(n).items():
                buffer = ring.buffers[name]
                if not isinstance(source, list):
                    plgpu.copy_gmem_to_smem(source, buffer.at[slot], ring.full.at[slot])
                    continue
                for m, part in enumerate(source):
                    plgpu.copy_gmem_to_smem(part, buffer.at[slot, m], ring.full.at[slot])

        # Until all is read: no barrier is left in the middle of its use.
        @pl.loop(jnp.maximum(place.count - STAGES, 0), place.count)
        def _(n):
            plgpu.barrier_wait(ring.empty.at[lax.rem(n, STAGES)])


def take(ring: Ring, n) -> dict:
    """Waits for the n-th block of a ring: its parts by name."""
    slot = lax.rem(n, STAGES)
    plgpu.barrier_wait(ring.full.at[slot])
    return {name: buffer.at[slot] for name, buffer in ring.buffers.items()}


def give_back(ring: Ring, n) -> None:
    plgpu.barrier_arrive(ring.empty.at[lax.rem(n, STAGES)])


def split_tile(place: Place) -> list:
    """Splits a tile into the rows of each warpgroup."""
    return [pl.ds(place.tile * TILE + group * ROWS, ROWS) for group in range(GROUPS)]


QUERIES = "q", "q_position", "do", "answer", "lse", "delta"  # arrays with a row for each query


def find_queries(arrays: Mapping, shared: Shared, place: Place, start=None) -> dict:
    """Finds a block of queries, what goes with them, and their numbers, by name."""
    rows = pl.ds(place.start if start is None else start, ROWS)
    parts = find_rows({n: x for n, x in arrays.items() if n in QUERIES}, place, start)
    return parts | {"columns": shared.queries_BnP.at[place.row, :, rows]}


def find_rows(arrays: Mapping, place: Place, start=None, size: int = ROWS) -> dict:
    """Finds rows of arrays [B, rows, H, K] or [B, H, rows], by name.

    Args:
        start: the first; None: that of this warpgroup.
    """
    b, h, rows = place.row, place.head, pl.ds(place.start if start is None else start, size)
    return {n: x.at[b, rows, h] if x.ndim == 4 else x.at[b, h, rows] for n, x in arrays.items()}


def find_key_numbers(shared: Shared, place: Place, start, size: int) -> dict:
    """Finds the numbers of a block of keys, if there are any."""
    if shared.keys_BnJ is None:
        return {}
    return {"rows": shared.keys_BnJ.at[place.row, :, pl.ds(start, size)]}


def find_distances(arrays: Mapping, shared: Shared, place: Place, start) -> list:
    """Finds the distances that two warpgroups have in a step, in three parts of ROWS."""
    table = shared.tables_B[place.row]
    rows = [pl.ds(start + n * ROWS, ROWS) for n in range(PARTS)]
    return [arrays["r"].at[table, x, place.head] for x in rows]


def list_key_blocks(plan: Plan, arrays: Mapping, shared: Shared, place: Place) -> Callable:
    """Lists what goes with a block of keys, for a tile of queries."""

    def block(n):
        start = (place.first + n) * plan.width
        keys = {name: arrays[name] for name in ("k", "v")}
        parts = find_rows(keys, place, start, plan.width)
        if plan.terms == "bias":
            columns = pl.ds(start, plan.width)
            bias = arrays["bias"]
            blocks = (place.tile * GROUPS + group for group in range(GROUPS))
            parts["bias"] = [bias.at[place.row, place.head, m, :, columns] for m in blocks]
        if plan.terms == "distances":
            # From the tile's last query and the first key on: those of the second warpgroup first.
            first = plan.height - (place.tile + 1) * TILE + start
            parts["distances"] = find_distances(arrays, shared, place, first)
        return parts | find_key_numbers(shared, place, start, plan.width)

    return block


def fetch(sources: Mapping, scratch: Scratch, place: Place) -> dict:
    """Brings in what this warpgroup keeps, and waits for it: its parts by name."""
    barrier, slots = scratch.ready.at[place.group], {}
    for name, source in sources.items():
        slots[name] = scratch.own[name].at[place.group]
        plgpu.copy_gmem_to_smem(source, slots[name], barrier)
    plgpu.barrier_wait(barrier)
    return slots


def store(*pairs) -> None:
    """Copies blocks of shared memory, and waits until they may be overwritten."""
    plgpu.commit_smem()
    for source, target in pairs:
        plgpu.copy_smem_to_gmem(source, target)
    plgpu.wait_smem_to_gmem(0)
