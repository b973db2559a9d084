"""Runs a warpgroup of a Hopper GPU for `gpu_attention`, in Pallas Mosaic GPU.

Two warpgroups compute, each on a block of its own, and a third brings in what they walk over: a
ring of a few stages in shared memory.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

ROWS = 64  # of a warpgroup: the height of the tensor cores' instruction
GROUPS = 2  # warpgroups that compute
TILE = ROWS * GROUPS
STAGES = 2


class Plan(NamedTuple):
    """Sizes of a call, known before it is compiled.

    Attributes:
        P, J, K: queries, keys, and the width of a head.
        H: heads of the whole model.
        rate: of dropout.
        is_kept: (rate, position, words) -> bool, see `dropout_bits`.
        columns, rows: numbers of queries and of keys that a mask needs, see `mask_numbers`.
        is_interpreted: computed step by step, on a machine without a GPU.
        has_bias: a number is added to each score.
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
    has_bias: bool = False


class Shared(NamedTuple):
    """Arrays in main memory that all programs read.

    Attributes:
        rows_B, heads_H: of the whole batch and model, from which dropout counts, uint32.
        words_2: of dropout, uint32.
        blocks_BT2: the first block that a tile needs, and the one behind the last.
        queries_BnP: the plan's columns.
        keys_BnJ: the plan's rows; None: it has none.
        bias_BHQRJ: added to the scores, queries in blocks of ROWS; None: nothing is.
    """

    rows_B: Any
    heads_H: Any
    words_2: Any
    blocks_BT2: Any
    queries_BnP: Any
    keys_BnJ: Any = None
    bias_BHQRJ: Any = None


class Place(NamedTuple):
    """A program's place in the grid, and the blocks that it walks over.

    Attributes:
        row, head: of this device.
        tile: of queries, or of keys in `run_keys_backward`.
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
        buffers: each [STAGES, ...].
        full, empty: barriers of each stage.
    """

    buffers: Sequence
    full: Any
    empty: Any


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
    return ref[...] if plan.is_interpreted else plgpu.load(ref, (), layout=layout)


def load_block(plan: Plan, ref):
    """Loads a block of scores, as float32."""
    x = ref[...] if plan.is_interpreted else plgpu.load(ref, (), layout=plgpu.Layout.WGMMA)
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
        block: the parts of the n-th block, as the ring's buffers; a list of one for each group.
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

            for source, buffer in zip(block(n), ring.buffers, strict=True):
                if not isinstance(source, list):
                    plgpu.copy_gmem_to_smem(source, buffer.at[slot], ring.full.at[slot])
                    continue
                for group, part in enumerate(source):
                    plgpu.copy_gmem_to_smem(part, buffer.at[slot, group], ring.full.at[slot])

        # Until all is read: no barrier is left in the middle of its use.
        @pl.loop(jnp.maximum(place.count - STAGES, 0), place.count)
        def _(n):
            plgpu.barrier_wait(ring.empty.at[lax.rem(n, STAGES)])


def take(ring: Ring, n):
    """Waits for the n-th block of a ring."""
    slot = lax.rem(n, STAGES)
    plgpu.barrier_wait(ring.full.at[slot])
    return [buffer.at[slot] for buffer in ring.buffers]


def give_back(ring: Ring, n) -> None:
    plgpu.barrier_arrive(ring.empty.at[lax.rem(n, STAGES)])


def list_query_blocks(arrays, shared: Shared, place: Place, start=None) -> list:
    """Lists a block of queries, what goes with them, and their numbers."""
    rows = pl.ds(place.start if start is None else start, ROWS)
    wide = [x.at[place.row, rows, place.head] for x in arrays[:2]]
    narrow = [x.at[place.row, place.head, rows] for x in arrays[2:]]
    return [*wide, *narrow, shared.queries_BnP.at[place.row, :, rows]]


def list_key_blocks(k_ref, v_ref, shared: Shared, place: Place) -> Callable:
    def block(n):
        rows = pl.ds((place.first + n) * TILE, TILE)
        refs = [x.at[place.row, rows, place.head] for x in (k_ref, v_ref)]
        if (bias := shared.bias_BHQRJ) is not None:
            blocks = (place.tile * GROUPS + group for group in range(GROUPS))
            refs.append([bias.at[place.row, place.head, m, :, rows] for m in blocks])
        return refs + ([] if shared.keys_BnJ is None else [shared.keys_BnJ.at[place.row, :, rows]])

    return block


def fetch(sources, targets, barrier) -> None:
    for source, target in zip(sources, targets, strict=True):
        plgpu.copy_gmem_to_smem(source, target, barrier)
    plgpu.barrier_wait(barrier)


def store(*pairs) -> None:
    """Copies blocks of shared memory, and waits until they may be overwritten."""
    plgpu.commit_smem()
    for source, target in pairs:
        plgpu.copy_smem_to_gmem(source, target)
    plgpu.wait_smem_to_gmem(0)
