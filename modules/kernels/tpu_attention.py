"""Attention by a kernel for TPUs, written in Pallas, which writes nothing of [L, J] to memory.

Distances, segments and dropout are within; the backward pass computes the scores again.  The kernel
is compiled for TPUs, and its results are tested on a CPU; it has not run on a TPU.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from modules.activation_sharding import find_device, map_shards, num_shards
from modules.kernels import mask_numbers
from modules.kernels import tpu_attention_blocks as blocks
from modules.kernels.dropout_bits import is_kept_at_sum
from modules.kernels.tpu_attention_blocks import LANES, Plan
from modules.masks import AttentionView

NAME = "the TPU's kernel"
MAX_KEYS = 2048  # a program holds some rows of all scores
MEMORY = 48 * 2**20  # bytes that a program may hold
# As `tpu_attention_blocks` counts them.
QUERY_NUMBERS = ("first", "end", "below", "group", "own", "segment", "start")
KEY_NUMBERS = ("rank", "key_group", "key_segment")
OLDER = ("TPU v2", "TPU v3", "TPU v4")


def refusal(q_BPHK, k_BJHK, v_BJHK, view: AttentionView, relative, dropout) -> str:
    """Says why the kernel does not take these; "": it does."""
    (B, P, H, K), J = q_BPHK.shape, k_BJHK.shape[1]
    if J % LANES or J > MAX_KEYS or P == 1 or (relative is not None and view.L % LANES):
        return f"it takes more than one query and a multiple of {LANES} keys, up to {MAX_KEYS}"
    if LANES % K and K % LANES:
        return f"heads of {K} do not fill {LANES} lanes"
    if view.mask.visible_BLJ is not None:
        return "the mask is written out"
    if relative is not None and relative.r.ndim == 4 and relative.backward_B is None:
        return "each row has distances of its own"
    if relative is not None and view.slots_BP is None and find_device().device_kind in OLDER:
        return "a TPU v4 cannot roll each row by one more than the row above it"
    if B % num_shards("B") or H % num_shards("H"):
        return "rows or heads do not divide over the devices"
    return ""


def attend(q_BPHK, k_BJHK, v_BJHK, view: AttentionView, relative, dropout):
    """Computes `attention.reference`."""
    (B, P, H, K), J = q_BPHK.shape, k_BJHK.shape[1]
    shift = "" if relative is None else ("order" if view.slots_BP is None else "slots")
    rate, words = (0.0, jnp.zeros(2, jnp.uint32)) if dropout is None else dropout
    is_interpreted = find_device().platform != "tpu"
    plan = Plan(P, view.L, J, H, K, H * K, rate, is_kept_at_sum, shift, is_interpreted)
    tables_B = jnp.zeros(B, jnp.int32)
    if relative is not None and relative.backward_B is not None:
        tables_B = relative.backward_B.astype(jnp.int32)
    numbers = Numbers(
        jnp.arange(B, dtype=jnp.int32),
        jnp.arange(H, dtype=jnp.int32),
        tables_B,
        jax.lax.bitcast_convert_type(words, jnp.int32),
        stack_queries(view, J, B, plan.rows * plan.blocks),
        stack_keys(view, J, B),
    )
    q_BPF = mask_numbers.pad_rows(q_BPHK.reshape(B, P, H * K), plan.rows * plan.blocks)
    arrays = (q_BPF, *(x.reshape(B, J, H * K) for x in (k_BJHK, v_BJHK)))
    if relative is not None:
        arrays += _flatten_terms(relative)
    return _attend(plan, arrays, numbers)[:, :P].reshape(q_BPHK.shape)


def _flatten_terms(relative):
    names = ("content_HK", "position_HK", "segment_HK", "other_HK")
    bias_4F = jnp.stack([getattr(relative, name).reshape(-1) for name in names])
    r_TRF = relative.r.reshape(-1, relative.r.shape[-3], bias_4F.shape[1])
    return jnp.pad(bias_4F, ((0, 4), (0, 0))), r_TRF  # registers have eight rows


# --- a mask in numbers ---------------------------------------------------------------------------


class Numbers(NamedTuple):
    """Integers that the kernel reads beside its arrays, int32.

    Attributes:
        rows_B, heads_H: of the whole batch and model, from which dropout counts.
        tables_B: the table of distances of each row.
        words_2: of dropout.
        queries_BPn, keys_BnJ: see `tpu_attention_blocks`.
    """

    rows_B: Any
    heads_H: Any
    tables_B: Any
    words_2: Any
    queries_BPn: Any
    keys_BnJ: Any


def stack_queries(view: AttentionView, J: int, B: int, P: int):
    """Writes the numbers of queries side by side: int32 [B, P, LANES]."""
    columns = mask_numbers.number_queries(view, J, B, P)
    numbers_BPn = jnp.stack([columns[name] for name in QUERY_NUMBERS], -1)
    return jnp.pad(numbers_BPn, ((0, 0), (0, 0), (0, LANES - len(columns))))


def stack_keys(view: AttentionView, J: int, B: int):
    """Writes the numbers of keys in rows: int32 [B, 8, J]."""
    rows = mask_numbers.number_keys(view, J, B)
    numbers_BnJ = jnp.stack([rows[name] for name in KEY_NUMBERS], 1)
    return jnp.pad(numbers_BnJ, ((0, 0), (0, 8 - len(rows)), (0, 0)))


# --- calls of the kernel -------------------------------------------------------------------------


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _attend(plan: Plan, arrays, numbers: Numbers):
    """Attends with heads side by side: q_BPF, k_BJF, v_BJF, bias_8F, r_TRF -> o_BPF."""
    return _call(_call_forward, plan, arrays, numbers, ["B_H"])[0]


def _forward(plan: Plan, arrays, numbers: Numbers):
    return _attend(plan, arrays, numbers), (arrays, numbers)


def _backward(plan: Plan, residuals, do_BPF):
    arrays, numbers = residuals
    shared = ["B_H", "B__H"] if plan.shift else []
    grads = _call(_call_backward, plan, (*arrays, do_BPF), numbers, ["B_H"] * 3 + shared)
    grads = [*grads[:3], *(x_B.sum(0) for x_B in grads[3:])]
    grads = tuple(dx.astype(x.dtype) for dx, x in zip(grads, arrays, strict=True))
    return grads, None


_attend.defvjp(_forward, _backward)


def _call(call, plan: Plan, arrays, numbers: Numbers, results: list[str]):
    """Calls the kernel on every device, for its rows and heads."""
    letters = ["B", "H", "B", "_", "B__", "B__", "B_H", "B_H", "B_H"]
    letters += ["_H", "__H"] if plan.shift else []
    operands = [*numbers, *arrays]
    letters += ["B_H"] * (len(operands) - len(letters))  # the gradient, backwards
    return map_shards(functools.partial(call, plan), operands, letters, results)


def _call_forward(plan: Plan, *operands):
    call = Call(plan, Numbers(*operands[:6]), operands[6:])
    return call.run(blocks.run_forward, [call.queries], products=2, distances=1)


def _call_backward(plan: Plan, *operands):
    call = Call(plan, Numbers(*operands[:6]), operands[6:])
    specs = [call.queries, call.keys, call.keys, *call.terms]
    sums = [
        pltpu.VMEM((plan.J, plan.lanes), jnp.float32)
    ] * 2  # of the gradients of keys and values
    grads = call.run(blocks.run_backward, specs, sums, products=5, distances=3)
    # A leading dimension of one entry a device, over which what all rows share is summed.
    return [*grads[:3], *(x[None] for x in grads[3:])]


class Call:
    """Which part of each array a program has, at (heads, row, block of queries) of the grid.

    Attributes:
        queries, keys: of arrays like the queries and the keys.
        terms: of what is added to queries, and of all distances; [] without distances.
    """

    def __init__(self, plan: Plan, numbers: Numbers, arrays):
        self.numbers, self.arrays = numbers, arrays
        self.plan = plan._replace(F=arrays[0].shape[2])
        W, J = plan.lanes, plan.J  # of a block, all heads that it holds
        self.queries = pl.BlockSpec((1, plan.rows, W), lambda h, b, n, *_: (b, n, h))
        self.keys = pl.BlockSpec((1, J, W), lambda h, b, n, *_: (b, 0, h))
        self.terms = []
        if plan.shift:
            shape = len(arrays[4]), J + plan.L, W
            self.terms = [
                pl.BlockSpec((8, W), lambda h, b, n, *_: (0, h)),
                pl.BlockSpec(shape, lambda h, b, n, *_: (0, 0, h)),
            ]

    def run(self, program, results, scratch=(), *, products: int, distances: int):
        """Runs a program at every place of the grid.

        Args:
            results: parts of the results, which are like the first arrays.
            scratch: memory of a program, which those after it find as it was left.
            products, distances: products with the keys, and with the distances.
        """
        plan, (B, P, F) = self.plan, self.arrays[0].shape
        words = jnp.concatenate([self.numbers.words_2, self.numbers.heads_H[:1]])
        inputs = [
            *(self.queries, self.keys, self.keys),
            pl.BlockSpec((1, plan.rows, LANES), lambda h, b, n, *_: (b, n, 0)),
            pl.BlockSpec((1, 8, plan.J), lambda h, b, n, *_: (b, 0, 0)),
        ]
        if plan.shift:
            shape = (1, plan.J + plan.L, plan.lanes)
            # A row reads the table of distances of its own direction.
            r = pl.BlockSpec(shape, lambda h, b, n, rows, tables, words: (tables[b], 0, h))
            inputs += [self.terms[0], r]
        operands = [*self.arrays[:3], *self.numbers[4:], *self.arrays[3:]]
        inputs += [self.queries] * (len(operands) - len(inputs))  # the gradient, backwards
        # Gradients of arrays that all rows share are sums over rows, in float32.
        dtypes = [x.dtype if n < 3 else jnp.float32 for n, x in enumerate(self.arrays)]
        shapes = [
            jax.ShapeDtypeStruct(x.shape, dtype)
            for _, x, dtype in zip(results, self.arrays, dtypes, strict=False)
        ]
        width = plan.J + (plan.rows if plan.shift == "order" else plan.L)
        columns = products * plan.J + (distances * width if plan.shift else 0)
        return pl.pallas_call(
            functools.partial(program, plan),
            grid_spec=pltpu.PrefetchScalarGridSpec(
                num_scalar_prefetch=3,
                grid=(pl.cdiv(F, plan.lanes), B, plan.blocks),
                in_specs=inputs,
                out_specs=results,
                scratch_shapes=scratch,
            ),
            out_shape=shapes,
            # Heads are divided over the cores of a chip; what is summed over rows stays on one.
            compiler_params=pltpu.CompilerParams(
                dimension_semantics=("parallel", "arbitrary", "arbitrary"),
                vmem_limit_bytes=MEMORY,
            ),
            cost_estimate=pl.CostEstimate(
                flops=2 * B * P * columns * F,
                transcendentals=B * P * plan.J * (F // plan.K),
                bytes_accessed=sum(x.size * x.dtype.itemsize for x in (*operands, *shapes)),
            ),
            interpret=plan.is_interpreted,
            name=program.__name__,
        )(self.numbers.rows_B, self.numbers.tables_B, words, *operands)
