"""Moves scores between the threads of a Hopper GPU's warpgroup, through shared memory.

A distance is a key's place less a query's, so that from row to row the same distance stands one
place further on; and what was written by queries is read by keys.  The tensor cores leave each
number with a thread by its place, and no instruction moves it so.  The interpreter of kernels has
no threads, and takes the references.
"""

import jax.numpy as jnp
from jax import lax
from jax.experimental.mosaic import gpu as mgpu
from jax.experimental.pallas import mosaic_gpu as plgpu
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import arith, vector

SIZE = 64  # of a block, in both directions


def reference(x, axis: int, is_back: bool = False):
    """Rolls the entries along an axis by the place i on the other one.

    Args:
        axis: of the entries; entry n becomes that at n + 63 - i, around the corner.
        is_back: undo it.
    """
    i, n = (jnp.arange(SIZE).reshape((-1, 1) if a == 0 else (1, -1)) for a in (1 - axis, axis))
    return jnp.take_along_axis(x, (n + 1 + i if is_back else n + SIZE - 1 - i) % SIZE, axis)


def roll(plan, x, memory_ref, axis: int, is_back: bool = False):
    """Computes `reference` in a warpgroup: of scores by distance those by key, or back.

    Args:
        plan: `gpu_warpgroup.Plan`.
        x: float32 [SIZE, SIZE], as the tensor cores leave a block.
        memory_ref: shared memory, float32 [SIZE, more than SIZE].
    """
    if plan.is_interpreted:
        return reference(x, axis, is_back)

    def find(place):
        i, n = place[1 - axis], place[axis]
        if is_back:
            n = arith.addi(n, arith.addi(i, _number(1)))
        else:
            n = arith.subi(arith.addi(n, _number(2 * SIZE - 1)), i)
        n = arith.andi(n, _number(SIZE - 1))
        return [i, n] if axis else [n, i]

    @plgpu.inline_mgpu(
        arg_types=(plgpu.Layout.WGMMA, plgpu.RefType()), return_type=_describe(jnp.float32)
    )
    def exchange(_, block, memory):
        _write(block, memory)
        mgpu.warpgroup_barrier()
        return _load(memory, find)

    return exchange(x, memory_ref)


def reference_of_two(low, high):
    """Cuts from each row i of two blocks side by side the SIZE entries from the 63 - i-th on."""
    i, n = (jnp.arange(SIZE).reshape((-1, 1) if a == 0 else (1, -1)) for a in (0, 1))
    return jnp.take_along_axis(jnp.concatenate([low, high], 1), SIZE - 1 - i + n, 1)


def store_scores(plan, x, memory_ref) -> None:
    """Leaves scores by distance for `load_by_key`, when the warpgroup has read what stood there.

    Args:
        memory_ref: one of the two blocks, float32 [SIZE, more than SIZE].
    """
    if plan.is_interpreted:
        memory_ref[:, :SIZE] = x
        return

    @plgpu.inline_mgpu(arg_types=(plgpu.Layout.WGMMA, plgpu.RefType()))
    def write(_, block, memory):
        _write(block, memory)

    write(x, memory_ref)


def load_by_key(plan, memory_ref, first):
    """Computes `reference_of_two`: of scores by distance those by key.

    Args:
        memory_ref: shared memory, float32 [2, SIZE, more than SIZE], in which an even block stands
            before an odd one.
        first: number of the lower block, int32.
    """
    if plan.is_interpreted:
        blocks = (memory_ref[lax.rem(first + n, 2), :, :SIZE] for n in range(2))
        return reference_of_two(*blocks)
    number = plgpu.Layout.WG_SPLAT(())

    @plgpu.inline_mgpu(arg_types=(plgpu.RefType(), number), return_type=_describe(jnp.float32))
    def read(_, memory, first):
        first = arith.index_cast(ir.IndexType.get(), first.registers.item())

        def find(place):
            i, n = place
            n = arith.subi(arith.addi(n, _number(SIZE - 1)), i)
            block = arith.addi(arith.shrui(n, _number(6)), first)
            return [arith.andi(block, _number(1)), i, arith.andi(n, _number(SIZE - 1))]

        mgpu.warpgroup_barrier()
        return _load(memory, find)

    return read(memory_ref, first)


def load_transposed(plan, memory_ref):
    """Loads the transpose of a block [SIZE, SIZE] of shared memory, as float32."""
    if plan.is_interpreted:
        return memory_ref[...].T.astype(jnp.float32)

    @plgpu.inline_mgpu(arg_types=(plgpu.RefType(),), return_type=_describe(memory_ref.dtype))
    def load(_, memory):
        return _load(memory, lambda place: [place[1], place[0]])

    return load(memory_ref).astype(jnp.float32)


def _write(block, memory) -> None:
    places = block.layout.thread_idxs((SIZE, SIZE))
    mgpu.warpgroup_barrier()  # what stood there has been read
    for place, numbers in zip(places, block.registers.flat, strict=True):
        vector.store(numbers, memory, list(place))


def _load(memory, find) -> mgpu.FragmentedArray:
    """Loads a block, for each place what stands where `find` says."""
    layout, shape = mgpu.WGMMA_LAYOUT, (SIZE, SIZE)
    number = ir.MemRefType(memory.type).element_type
    one, pair = (ir.VectorType.get((n,), number) for n in (1, layout.vector_length))
    registers = mgpu.FragmentedArray.splat(mgpu.c(0, number), shape, layout).registers.copy()
    for n, (row, column) in enumerate(layout.thread_idxs(shape)):
        numbers = []
        for m in range(layout.vector_length):
            source = find([row, arith.addi(column, _number(m))])
            x = vector.load(one, memory, source)
            numbers.append(vector.extract(x, dynamic_position=[], static_position=[0]))
        registers.flat[n] = vector.from_elements(pair, numbers)
    return mgpu.FragmentedArray(_registers=registers, _layout=layout, _is_signed=None)


def _number(n: int) -> ir.Value:
    return mgpu.c(n, ir.IndexType.get())


def _describe(dtype) -> plgpu.ShapeDtypeStruct:
    return plgpu.ShapeDtypeStruct((SIZE, SIZE), dtype, layout=plgpu.Layout.WGMMA)
