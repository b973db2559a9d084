"""Attention by a kernel for Hopper GPUs that drops probabilities by the same hash as everywhere.

It writes nothing of [L, J] unless scores of distances and segments are added: XLA computes these,
and is given their gradient.  The backward pass computes the scores again.  The kernel is compiled
for GPUs, and its results are tested on a CPU; it has not run on a GPU.
"""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental.pallas import mosaic_gpu as plgpu

from modules.activation_sharding import choose_form, find_device, map_shards, num_shards
from modules.kernels import dropout_bits, gpu_warpgroup, mask_numbers
from modules.kernels import gpu_attention_blocks as blocks
from modules.kernels.gpu_warpgroup import GROUPS, ROWS, STAGES, TILE, Plan, Ring, Shared
from modules.masks import AttentionView

NAME = "the Hopper GPU's kernel"
WIDTHS = 64, 128  # of heads
HOPPER = "9.0"


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
    """Computes `attention.reference`; of relative terms the products are XLA's, as a bias."""
    (B, P, H, K), J = q_BPHK.shape, k_BJHK.shape[1]
    rate, words = (0.0, jnp.zeros(2, jnp.uint32)) if dropout is None else dropout
    is_kept = choose_form(dropout_bits.POSITION_FORMS)
    is_interpreted = find_device().platform != "gpu"
    needed, has_bias = mask_numbers.list_needed(view), relative is not None
    plan = Plan(P, J, K, H, rate, is_kept, *needed, is_interpreted, has_bias)
    height = -(-P // TILE) * TILE  # filled up with queries that see nothing
    columns = mask_numbers.number_queries(view, J, B, height)
    rows = mask_numbers.number_keys(view, J, B)
    by_query, by_key = find_blocks(columns, rows, plan)
    arrays = [q_BPHK, k_BJHK, v_BJHK]
    if relative is not None:
        bias_BHPJ = relative.score(q_BPHK, view).astype(v_BJHK.dtype)
        bias_BHPJ = jnp.pad(bias_BHPJ, ((0, 0), (0, 0), (0, height - P), (0, 0)))
        arrays[0] = (q_BPHK + relative.content_HK).astype(q_BPHK.dtype)
        arrays.append(bias_BHPJ.reshape(B, H, height // ROWS, ROWS, J))
        # Each block of the bias has a gradient to be written, if only zeros.
        by_query = jnp.broadcast_to(jnp.array([0, J // TILE], jnp.int32), by_query.shape)
    numbers = Numbers(
        jnp.arange(B, dtype=jnp.uint32),
        jnp.arange(H, dtype=jnp.uint32),
        words,
        by_query,
        by_key,
        jnp.stack([columns[n] for n in plan.columns], 1),
        jnp.stack([rows[n] for n in plan.rows], 1) if plan.rows else None,
    )
    arrays[0] = mask_numbers.pad_rows(arrays[0], height)
    return _attend(plan, tuple(arrays), numbers)[:, :P]


class Numbers(NamedTuple):
    """Integers that the kernels read beside their arrays, see `gpu_attention_blocks.Shared`.

    Attributes:
        query_blocks_BT2, key_blocks_BT2: which blocks of keys a tile of queries needs, and which
            blocks of queries a tile of keys.
    """

    rows_B: Any
    heads_H: Any
    words_2: Any
    query_blocks_BT2: Any
    key_blocks_BT2: Any
    queries_BnP: Any
    keys_BnJ: Any

    def share(self, blocks_BT2, bias: Sequence = ()) -> Shared:
        """Returns what a program reads that walks over these blocks."""
        return Shared(*self[:3], blocks_BT2, *self[5:], *bias)


# --- which blocks a tile needs --------------------------------------------------------------------


def find_blocks(columns: dict, rows: dict, plan: Plan) -> tuple[Any, Any]:
    """Finds the blocks that hold all that a tile sees, or by which it is seen: [B, T, 2] each.

    Returns:
        (blocks of keys by tile of queries, blocks of queries by tile of keys); a first block, and
        the one behind the last.
    """
    pairs = (_find_pairs(columns, rows, plan, height) for height in (TILE, ROWS))
    by_query, by_key = pairs
    return _find_spans(by_query), _find_spans(by_key.swapaxes(1, 2))


def _find_pairs(columns: dict, rows: dict, plan: Plan, height: int):
    """Finds which blocks of queries see anything of which tile of keys, or might: [B, Q, T]."""
    split = lambda x, size: x.reshape(x.shape[0], -1, size)  # noqa: E731
    low, high = ({n: f(split(x, height), 2)[..., None] for n, x in columns.items()} for f in EDGES)
    key_low, key_high = ({n: f(split(x, TILE), 2)[:, None] for n, x in rows.items()} for f in EDGES)
    start = jnp.arange(plan.J // TILE) * TILE
    pairs = (high["end"] > start) & (low["first"] < start + TILE)
    pairs &= high["below"] > key_low["rank"]
    group, key_group = "group", "key_group"
    pairs &= (high[group] >= key_low[key_group]) & (low[group] <= key_high[key_group])
    own = "own"
    return pairs | ((high[own] >= start) & (low[own] < start + TILE))


EDGES = (jnp.min, jnp.max)


def _find_spans(pairs_BTn):
    """Finds the first block that a tile needs, and the one behind the last: int32 [B, T, 2]."""
    n = pairs_BTn.shape[2]
    first = jnp.argmax(pairs_BTn, 2)
    end = jnp.where(pairs_BTn.any(2), n - jnp.argmax(pairs_BTn[..., ::-1], 2), first)
    return jnp.stack([first, end], 2).astype(jnp.int32)


# --- calls of the kernel -------------------------------------------------------------------------


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _attend(plan: Plan, arrays, numbers):
    return _call(_call_forward, plan, arrays, numbers, ["B_H_", "BH_"])[0]


def _forward(plan: Plan, arrays, numbers):
    o_BPHK, lse_BHP = _call(_call_forward, plan, arrays, numbers, ["B_H_", "BH_"])
    return o_BPHK, (arrays, numbers, o_BPHK, lse_BHP)


def _backward(plan: Plan, residuals, do_BPHK):
    arrays, numbers, o_BPHK, lse_BHP = residuals
    # What the softmax's Jacobian takes from each gradient of a row.
    products = o_BPHK.astype(jnp.float32) * do_BPHK.astype(jnp.float32)
    delta_BHP = products.sum(3).swapaxes(1, 2)
    do_BPHK = do_BPHK.astype(o_BPHK.dtype)
    operands = (*arrays, do_BPHK, lse_BHP, delta_BHP)
    if not plan.has_bias:
        return tuple(_call(_call_backward, plan, operands, numbers, ["B_H_"] * 3)), None
    results = ["B_H_", "BH___", "BH___"]
    dq, da_BHQRJ, p_BHQRJ = _call(_call_biased_backward, plan, operands, numbers, results)
    split = lambda x: x.reshape(x.shape[0], -1, ROWS, *x.shape[2:])  # noqa: E731
    product = functools.partial(jnp.einsum, "BHQRJ,BQRHK->BJHK", preferred_element_type=jnp.float32)
    dk = (product(da_BHQRJ, split(arrays[0])) * plan.K**-0.5).astype(dq.dtype)
    dv = (product(p_BHQRJ, split(do_BPHK)) * (1 / (1 - plan.rate))).astype(dq.dtype)
    return (dq, dk, dv, da_BHQRJ), None


_attend.defvjp(_forward, _backward)


def _call(call, plan: Plan, arrays, numbers: Numbers, results: list[str]):
    """Calls the kernel on every device, for its rows and heads."""
    letters = ["B", "H", "_", "B__", "B__", "B__", "B__"]
    letters = letters if plan.rows else letters[:-1]
    operands = [x for x in numbers if x is not None]
    letters += [{3: "BH_", 4: "B_H_", 5: "BH___"}[x.ndim] for x in arrays]
    call = functools.partial(call, plan)
    return map_shards(call, [*operands, *arrays], letters, results)


def _split(plan: Plan, operands):
    count = len(Numbers._fields) - (0 if plan.rows else 1)
    numbers = operands[:count] if plan.rows else (*operands[:count], None)
    return Numbers(*numbers), operands[count:]


def _call_forward(plan: Plan, *operands):
    numbers, (q, k, v, *bias) = _split(plan, operands)
    lse = jax.ShapeDtypeStruct((q.shape[0], q.shape[2], q.shape[1]), jnp.float32)
    call = Call(
        "forward",
        [_like(q), lse],
        ring=_list_key_ring(plan, k, v),
        own=[_wide(q, ROWS), *_count(plan.columns, ROWS)],
        products=2,
        extra=(plgpu.SMEM((GROUPS, ROWS), jnp.float32),),
    )
    shared = numbers.share(numbers.query_blocks_BT2, bias)
    return call.run(plan, blocks.run_forward, (q, k, v), shared)


def _list_key_ring(plan: Plan, k, v) -> list:
    bias = [((GROUPS, ROWS, TILE), v.dtype)] * plan.has_bias
    return [_wide(k, TILE), _wide(v, TILE), *bias, *_count(plan.rows, TILE)]


def _call_biased_backward(plan: Plan, *operands):
    numbers, (q, k, v, bias, *grads) = _split(plan, operands)
    sums = [((ROWS,), jnp.float32)] * 2
    queries = [_wide(q, ROWS), _wide(grads[0], ROWS), *sums, *_count(plan.columns, ROWS)]
    call = Call(
        "queries_backward",
        [_like(q), _like(bias), _like(bias)],
        _list_key_ring(plan, k, v),
        queries,
        products=3,
        extra=(_allocate(GROUPS, (ROWS, TILE), v.dtype),),
    )
    shared = numbers.share(numbers.query_blocks_BT2, [bias])
    return call.run(plan, blocks.run_queries_backward, (q, k, v, *grads), shared)


def _call_backward(plan: Plan, *operands):
    numbers, arrays = _split(plan, operands)
    q, k, v, do, *_ = arrays
    sums = [((ROWS,), jnp.float32)] * 2
    queries = [_wide(q, ROWS), _wide(do, ROWS), *sums, *_count(plan.columns, ROWS)]
    call = Call("queries_backward", [_like(q)], _list_key_ring(plan, k, v), queries, products=3)
    shared = numbers.share(numbers.query_blocks_BT2)
    grads = call.run(plan, blocks.run_queries_backward, arrays, shared)
    keys = [_wide(k, ROWS), _wide(v, ROWS), *_count(plan.rows, ROWS)]
    call = Call("keys_backward", [_like(k), _like(v)], queries, keys, products=4)
    shared = numbers.share(numbers.key_blocks_BT2)
    return [*grads, *call.run(plan, blocks.run_keys_backward, arrays, shared)]


class Call(NamedTuple):
    """A call of a program.

    Attributes:
        name: of the program.
        results: shapes of its results, the first like the array whose tiles are its grid.
        ring, own: shapes and dtypes of what goes around, and of what a warpgroup keeps.
        products: how many matrices of all scores it multiplies.
        extra: memory for results.
    """

    name: str
    results: list
    ring: list
    own: list
    products: int
    extra: tuple = ()

    @property
    def copies(self) -> int:
        """Counts the copies of a stage: of a block for each warpgroup there are several."""
        return sum(GROUPS if len(shape) == 3 else 1 for shape, _ in self.ring)

    def run(self, plan: Plan, program, arrays, shared: Shared):
        """Runs the program for every row, head and tile."""
        B, length, H, K = self.results[0].shape
        # A call says nothing of its work in the compiled program but by its name, which
        # `pretrain.aot` reads; causal masks and documents leave out blocks, as cuDNN does.
        flops = 2 * self.products * B * H * K * plan.P * plan.J
        named = {name: x for name, x in shared._asdict().items() if x is not None}
        given = list(named.values())

        def body(*refs):
            inputs, rest = refs[: len(given) + len(arrays)], refs[len(given) + len(arrays) :]
            outputs, scratch = rest[: len(self.results)], rest[len(self.results) :]
            q_ref, k_ref, v_ref, *grads = inputs[len(given) :]
            grads = [grads] if grads else []
            program(
                gpu_warpgroup,
                plan,
                q_ref,
                k_ref,
                v_ref,
                Shared(**dict(zip(named, inputs, strict=False))),
                *grads,
                outputs,
                scratch,
            )

        kernel = plgpu.kernel(
            body,
            out_type=self.results,
            scratch_types=[
                Ring(
                    [_allocate(STAGES, *x) for x in self.ring],
                    plgpu.Barrier(num_arrivals=self.copies, num_barriers=STAGES),
                    plgpu.Barrier(num_arrivals=GROUPS, num_barriers=STAGES),
                ),
                [_allocate(GROUPS, *x) for x in self.own],
                plgpu.Barrier(num_arrivals=len(self.own), num_barriers=GROUPS),
                *self.extra,
            ],
            grid=(H, length // TILE, B),
            grid_names=("head", "tile", "row"),
            num_threads=GROUPS + 1,
            thread_name="group",
            compiler_params=plgpu.CompilerParams(approx_math=True),
            interpret=_interpreter() if plan.is_interpreted else None,
        )
        with jax.named_scope(f"{self.name}_flops_{flops}"):
            return kernel(*given, *arrays)


def _interpreter():
    """Returns what lets JAX's interpreter of GPU kernels run one; for tests, on a CPU."""
    from jax._src.pallas.mosaic_gpu.interpret.params import InterpretGPUParams

    return InterpretGPUParams()


def _like(x):
    return jax.ShapeDtypeStruct(x.shape, x.dtype)


def _wide(x, height: int):
    """Returns the shape and dtype of a block of an array [B, L, H, K]."""
    return (height, x.shape[3]), x.dtype


def _count(names: tuple[str, ...], height: int) -> list:
    """Returns the shape and dtype of a block's numbers; none of none."""
    return [((len(names), height), jnp.int32)] if names else []


def _allocate(count: int, shape, dtype):
    """Returns shared memory for several blocks; one for the tensor cores in their order."""
    bytes_ = jnp.dtype(dtype).itemsize
    if jnp.dtype(dtype) == jnp.int32 or len(shape) == 1:
        return plgpu.SMEM((count, *shape), dtype)
    order = plgpu.TilingTransform((8, 128 // bytes_)), plgpu.SwizzleTransform(128)
    return plgpu.SMEM((count, *shape), dtype, transforms=order)
