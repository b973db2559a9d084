"""Calls of the programs of `gpu_attention_blocks`: their grids, shared memory and results."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental.pallas import mosaic_gpu as plgpu


class Kit(NamedTuple):
    """Modules that a call is made of: none of them imports another.

    Attributes:
        blocks, scoring: `gpu_attention_blocks` and `gpu_scores`.
        warpgroup: `gpu_warpgroup`.
    """

    blocks: Any
    scoring: Any
    warpgroup: Any


class Numbers(NamedTuple):
    """Integers that the programs read beside their arrays, see `gpu_warpgroup.Shared`.

    Attributes:
        query_blocks_BT2, key_blocks_BT2, distance_blocks_BT2: which blocks of keys a tile of
            queries needs, and which blocks of queries a tile of keys, or of distances.
    """

    rows_B: Any
    heads_H: Any
    words_2: Any
    query_blocks_BT2: Any
    key_blocks_BT2: Any
    queries_BnP: Any
    keys_BnJ: Any = None
    tables_B: Any = None
    distance_blocks_BT2: Any = None

    def share(self, kit: Kit, blocks_BT2):
        """Returns what a program reads that walks over these blocks, `gpu_warpgroup.Shared`."""
        numbers = self.queries_BnP, self.keys_BnJ, self.tables_B
        first = self.rows_B, self.heads_H, self.words_2
        return kit.warpgroup.Shared(*first, blocks_BT2, *numbers)


def run_forward(kit: Kit, plan, numbers: Numbers, arrays: Mapping) -> list:
    """Computes [outputs, log2 of the sums of exponentials]."""
    q, has_distances = arrays["q"], plan.terms == "distances"
    lse = jax.ShapeDtypeStruct((q.shape[0], q.shape[2], q.shape[1]), jnp.float32)
    extra = {"lse": ((kit.warpgroup.ROWS,), jnp.float32)}
    call = Call(
        kit.blocks.run_forward,
        {"o": _like(q), "lse": lse},
        ring=_list_key_ring(kit, plan, arrays),
        own=_list_queries(kit, plan, arrays),
        extra=extra | _list_memory(kit, plan, "slide", 2),
        products=3 if has_distances else 2,
        at_ends=1 if has_distances else 0,
    )
    return call.run(kit, plan, arrays, numbers.share(kit, numbers.query_blocks_BT2))


def run_backward(kit: Kit, plan, numbers: Numbers, arrays: Mapping) -> list:
    """Computes the gradients of queries, with their terms', of keys, values and distances."""
    group, blocks, has_distances = kit.warpgroup, kit.blocks, plan.terms == "distances"
    queries = _list_queries(kit, plan, arrays)
    grads = {"dq": _like(arrays["q"])}
    if plan.terms == "bias":
        grads["dbias"] = _like(arrays["bias"])
    if has_distances:
        grads |= {f"d{name}": _like(arrays[name]) for name in ("q_position", "answer")}
    call = Call(
        blocks.run_queries_backward,
        grads,
        ring=_list_key_ring(kit, plan, arrays),
        own=queries,
        extra=_list_memory(kit, plan, "slide", 2),
        products=5 if has_distances else 3,
        at_ends=2 if has_distances else 0,
    )
    results = call.run(kit, plan, arrays, numbers.share(kit, numbers.query_blocks_BT2))
    keys, roll = _list_keys(kit, plan, arrays, group.ROWS), _list_memory(kit, plan, "roll")
    ring = queries | _list_distances(kit, plan, arrays)
    if plan.terms == "bias":
        ring["bias_by_query"] = ((group.GROUPS, group.ROWS, group.ROWS), arrays["bias"].dtype)
    call = Call(
        blocks.run_keys_backward,
        {f"d{name}": _like(arrays[name]) for name in ("k", "v")},
        ring=ring,
        own=keys,
        extra=roll,
        products=6 if has_distances else 4,
    )
    results += call.run(kit, plan, arrays, numbers.share(kit, numbers.key_blocks_BT2))
    if not has_distances:
        return results
    r = arrays["r"]
    call = Call(
        blocks.run_distances_backward,
        {"dr": jax.ShapeDtypeStruct((len(arrays["k"]), *r.shape[1:]), r.dtype)},
        ring=queries | {name: ((group.PARTS, *shape), x) for name, (shape, x) in keys.items()},
        own={"r": _wide(r, group.ROWS)},
        extra=roll,
        products=6,
        at_ends=6 * 2,
    )
    return results + call.run(kit, plan, arrays, numbers.share(kit, numbers.distance_blocks_BT2))


class Call(NamedTuple):
    """A call of a program.

    Attributes:
        program: of `gpu_attention_blocks`.
        results: shapes of its results, the first like the array whose tiles are its grid.
        ring, own, extra: shapes and dtypes, by name, of what goes around, of what a warpgroup
            keeps, and of memory that nothing is brought to.
        products: how many matrices of all scores it multiplies; where half of two blocks is read,
            both count.
        at_ends: how many matrices of a block it multiplies beside, for each block of queries.
    """

    program: Callable
    results: Mapping[str, Any]
    ring: Mapping[str, tuple]
    own: Mapping[str, tuple]
    extra: Mapping[str, tuple]
    products: int
    at_ends: int = 0

    @property
    def copies(self) -> int:
        """Counts the copies of a stage: some parts come in several."""
        return sum(_count_copies(shape) for shape, _ in self.ring.values())

    def run(self, kit: Kit, plan, arrays: Mapping, shared) -> list:
        """Runs the program for every row, head and tile."""
        group = kit.warpgroup
        B, length, H, K = next(iter(self.results.values())).shape
        # A call says nothing of its work in the compiled program but by its name, which
        # `pretrain.aot` reads; causal masks and documents leave out blocks, as cuDNN does.
        width = self.products * plan.J + self.at_ends * group.ROWS
        flops = 2 * B * H * K * plan.height * width
        leaves, tree = jax.tree.flatten((shared, dict(arrays)))

        def body(*refs):
            inputs, rest = refs[: len(leaves)], refs[len(leaves) :]
            results = dict(zip(self.results, rest, strict=False))
            given, named = jax.tree.unflatten(tree, inputs)
            memory = group.Scratch(*rest[len(results) :])
            self.program(group, kit.scoring, plan, named, given, results, memory)

        allocate = lambda count, x: {n: _allocate(n, count, *y) for n, y in x.items()}  # noqa: E731
        scratch = group.Scratch(
            group.Ring(
                allocate(group.STAGES, self.ring),
                plgpu.Barrier(num_arrivals=self.copies, num_barriers=group.STAGES),
                plgpu.Barrier(num_arrivals=group.GROUPS, num_barriers=group.STAGES),
            ),
            allocate(group.GROUPS, self.own),
            plgpu.Barrier(num_arrivals=len(self.own), num_barriers=group.GROUPS),
            allocate(group.GROUPS, self.extra),
        )
        kernel = plgpu.kernel(
            body,
            out_type=list(self.results.values()),
            scratch_types=list(scratch),
            grid=(H, length // group.TILE, B),
            grid_names=("head", "tile", "row"),
            num_threads=group.GROUPS + 1,
            thread_name="group",
            compiler_params=plgpu.CompilerParams(approx_math=True),
            interpret=_interpreter() if plan.is_interpreted else None,
        )
        name = self.program.__name__.removeprefix("run_")
        with jax.named_scope(f"{name}_flops_{flops}"):
            return list(kernel(*leaves))


def _interpreter():
    """Returns what lets JAX's interpreter of GPU kernels run one; for tests, on a CPU."""
    from jax._src.pallas.mosaic_gpu.interpret.params import InterpretGPUParams

    return InterpretGPUParams()


# --- shared memory: shapes and dtypes by name -----------------------------------------------------


def _list_queries(kit: Kit, plan, arrays: Mapping) -> dict:
    shapes = {
        name: _wide(x, kit.warpgroup.ROWS) if x.ndim == 4 else ((kit.warpgroup.ROWS,), x.dtype)
        for name, x in arrays.items()
        if name in kit.warpgroup.QUERIES
    }
    return shapes | {"columns": ((len(plan.columns), kit.warpgroup.ROWS), jnp.int32)}


def _list_keys(kit: Kit, plan, arrays: Mapping, height: int) -> dict:
    shapes = {name: _wide(arrays[name], height) for name in ("k", "v")}
    return shapes | ({"rows": ((len(plan.rows), height), jnp.int32)} if plan.rows else {})


def _list_distances(kit: Kit, plan, arrays: Mapping) -> dict:
    if plan.terms != "distances":
        return {}
    return {"distances": ((kit.warpgroup.PARTS, kit.warpgroup.ROWS, plan.K), arrays["r"].dtype)}


def _list_key_ring(kit: Kit, plan, arrays: Mapping) -> dict:
    shapes = _list_keys(kit, plan, arrays, plan.width) | _list_distances(kit, plan, arrays)
    if plan.terms == "bias":
        shapes["bias"] = (
            (kit.warpgroup.GROUPS, kit.warpgroup.ROWS, plan.width),
            arrays["bias"].dtype,
        )
    return shapes


def _list_memory(kit: Kit, plan, name: str, *blocks: int) -> dict:
    """Lists memory for blocks of scores by distance, if there are any."""
    if plan.terms != "distances":
        return {}
    return {name: ((*blocks, kit.warpgroup.ROWS, kit.warpgroup.PITCH), jnp.float32)}


def _like(x):
    return jax.ShapeDtypeStruct(x.shape, x.dtype)


def _wide(x, height: int):
    """Returns the shape and dtype of a block of an array [B, L, H, K]."""
    return (height, x.shape[3]), x.dtype


def _count_copies(shape) -> int:
    return shape[0] if len(shape) == 3 else 1


def _allocate(name: str, count: int, shape, dtype):
    """Returns shared memory for several blocks; one for the tensor cores in their order."""
    if name == "bias_by_query":  # which no tensor core reads
        return plgpu.SMEM((count, *shape), dtype)
    if jnp.dtype(dtype).itemsize == 4:
        return plgpu.SMEM((count, *shape), dtype)
    order = plgpu.TilingTransform((8, 64)), plgpu.SwizzleTransform(128)
    return plgpu.SMEM((count, *shape), dtype, transforms=order)
