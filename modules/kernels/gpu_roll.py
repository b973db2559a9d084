"""Rolls the rows of a block of scores, each by its own number of places, on a Hopper GPU.

A distance is a key's place less a query's, so that from row to row the same distance stands one
place further on.  No instruction moves a register's numbers so: they go through shared memory.
"""

import jax.numpy as jnp
from jax.experimental.mosaic import gpu as mgpu
from jax.experimental.pallas import mosaic_gpu as plgpu
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import arith, vector

SIZE = 64  # of a block, in both directions


def reference(x, memory_ref, axis: int, is_back: bool = False):
    """Rolls the entries along an axis by the place i on the other one.

    Args:
        memory_ref: not read.
        axis: of the entries; entry n becomes that at n + 63 - i, around the corner.
        is_back: undo it.
    """
    del memory_ref
    i, n = (jnp.arange(SIZE).reshape((-1, 1) if a == 0 else (1, -1)) for a in (1 - axis, axis))
    return jnp.take_along_axis(x, (n + 1 + i if is_back else n + SIZE - 1 - i) % SIZE, axis)


def roll(x, memory_ref, axis: int, is_back: bool = False):
    """Computes `reference` in a warpgroup.

    Args:
        x: float32 [SIZE, SIZE], as the tensor cores leave a block.
        memory_ref: shared memory, float32 [SIZE, more than SIZE].
    """
    layout, shape = plgpu.Layout.WGMMA, (SIZE, SIZE)

    @plgpu.inline_mgpu(
        arg_types=(layout, plgpu.RefType()),
        return_type=plgpu.ShapeDtypeStruct(shape, jnp.float32, layout=layout),
    )
    def exchange(_, block, memory):
        index, pair = ir.IndexType.get(), block.registers.flat[0].type
        number = lambda n: mgpu.c(n, index)  # noqa: E731
        places = list(block.layout.thread_idxs(shape))

        def load(place, offset: int):
            place = [place[0], arith.addi(place[1], number(offset))]
            i, n = place[1 - axis], place[axis]
            if is_back:
                n = arith.addi(n, arith.addi(i, number(1)))
            else:
                n = arith.subi(arith.addi(n, number(2 * SIZE - 1)), i)
            place[axis] = arith.andi(n, number(SIZE - 1))
            one = vector.load(ir.VectorType.get((1,), pair.element_type), memory, place)
            return vector.extract(one, dynamic_position=[], static_position=[0])

        mgpu.warpgroup_barrier()  # what was rolled before has been read
        for place, numbers in zip(places, block.registers.flat, strict=True):
            vector.store(numbers, memory, list(place))
        mgpu.warpgroup_barrier()
        rolled = block.registers.copy()
        for n, place in enumerate(places):
            rolled.flat[n] = vector.from_elements(pair, [load(place, m) for m in range(2)])
        return mgpu.FragmentedArray(_registers=rolled, _layout=block.layout, _is_signed=None)

    return exchange(x, memory_ref)
