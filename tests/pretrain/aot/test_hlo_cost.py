"""FLOPs, traffic and saved activations equal those of the compiler, and count loops in full."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from modules.kernels import RARELY
from pretrain.aot import hlo, hlo_cost
from tests.support.hlo_programs import F32, TPU, chain, compile_program, count_total


@pytest.fixture(scope="module")
def tpu() -> hlo.Program:
    return hlo.Program(TPU)


def flops(f, *args) -> float:
    return count_total(hlo_cost.count_flops, compile_program(f, *args))


# --- FLOPs -----------------------------------------------------------------------------------


def test_nested_loops_multiply_their_trip_counts():
    def repeat(x, ws):
        return jax.lax.scan(lambda x, _: (chain(x, ws), None), x, None, length=3)[0]

    assert flops(repeat, F32((4, 8)), F32((5, 8, 8))) == 3 * 5 * 2 * 4 * 8 * 8


def test_a_training_step_has_three_times_the_forward_flops():
    def loss(ws, x):
        return jnp.square(chain(x, ws)).sum()

    step = jax.grad(loss, argnums=(0, 1))
    assert flops(step, F32((5, 32, 32)), F32((16, 32))) == 3 * 5 * 2 * 16 * 32 * 32


@pytest.mark.parametrize(
    ("equation", "sizes"),
    [("bij,bjk->bik", (3, 4, 5, 6)), ("bij,kj->bik", (2, 3, 4, 5)), ("ijk,jkb->ib", (2, 3, 4, 5))],
)
def test_a_product_has_two_operations_per_index(equation, sizes):
    letters = dict(zip("bijk", sizes, strict=True))
    operands = [F32([letters[x] for x in side]) for side in equation.split("->")[0].split(",")]
    assert flops(functools.partial(jnp.einsum, equation), *operands) == 2 * math.prod(sizes)


@pytest.mark.parametrize("padding", [((1, 1), (0, 1)), ((0, 0), (2, 0))])
@pytest.mark.parametrize(("stride", "dilation"), [(2, 1), (1, 3)])
def test_convolution_flops_equal_the_compilers(padding, stride, dilation):
    convolve = functools.partial(
        jax.lax.conv_general_dilated,
        window_strides=(stride, 1),
        padding=padding,
        lhs_dilation=(dilation, 1),
    )
    compiled = jax.jit(convolve).lower(F32((2, 3, 9, 7)), F32((4, 3, 3, 2))).compile()
    count = count_total(hlo_cost.count_flops, hlo.Program(compiled.as_text()))
    assert count == compiled.cost_analysis()["flops"] > 0


def test_window_hits_equal_those_counted_one_by_one():
    draw = np.random.default_rng(0)
    for _ in range(300):
        size, width, positions, stride, dilation, spread = (int(n) for n in draw.integers(1, 7, 6))
        before = int(draw.integers(-3, 5))
        window = dict(stride=stride, lhs_dilate=dilation, rhs_dilate=spread, pad=f"{before}_0")
        entries = set(range(0, (size - 1) * dilation + 1, dilation))
        hits = sum(
            o * stride + j * spread - before in entries
            for o in range(positions)
            for j in range(width)
        )
        options = {name: str(value) for name, value in window.items()}
        assert hlo_cost.count_window_hits(size, width, positions, options) == hits


def test_only_the_longer_branch_of_a_conditional_counts():
    def either(long, a, b):
        return jax.lax.cond(long, lambda: a @ b @ b, lambda: a @ b)

    assert flops(either, jax.ShapeDtypeStruct((), bool), F32((8, 8)), F32((8, 8))) == 2 * 2 * 8**3


def test_a_branch_that_is_rarely_taken_does_not_count():
    def either(long, a, b):
        rare = jax.named_scope(RARELY)(lambda: a @ b @ b)
        return jax.lax.cond(long, rare, lambda: a @ b)

    # Another size than above: a cache of compiled programs takes no notice of names.
    assert flops(either, jax.ShapeDtypeStruct((), bool), F32((4, 4)), F32((4, 4))) == 2 * 4**3


def test_a_data_dependent_loop_counts_once():
    def loop(a, b):
        return jax.lax.while_loop(lambda x: x.sum() < 10, lambda x: x @ b, a)

    assert flops(loop, F32((8, 8)), F32((8, 8))) == 2 * 8**3


def test_products_written_as_a_convolution_count_in_full(tpu):
    """[B, L, H, K] times [B, J, H, K]: B and H are windows over dilated rows."""
    scores = tpu.computations["main"]["scores"]
    assert hlo_cost.count_flops(tpu, "main", scores) == 2 * 4 * 2 * 128 * 128 * 64


# --- memory ----------------------------------------------------------------------------------


def dense(a, b):
    return jnp.tanh(a @ b) + 1


def row(a, n):
    return jnp.sin(jax.lax.dynamic_index_in_dim(a, n, 0))


def with_row(a, n, b):
    return jax.lax.dynamic_update_index_in_dim(a, jnp.sin(b), n, 0)


INDEX = jax.ShapeDtypeStruct((), jnp.int32)
WITHOUT_LOOPS = {
    "dense": (dense, F32((64, 128)), F32((128, 32))),
    "softmax": (lambda a, b: jax.nn.softmax(a @ b), F32((64, 128)), F32((128, 32))),
    "row": (row, F32((64, 128)), INDEX),
    "with a row": (with_row, F32((64, 128)), INDEX, F32((128,))),
    "transposed": (lambda a: a.T + 1, F32((64, 128))),
}


@pytest.mark.parametrize("name", WITHOUT_LOOPS)
def test_traffic_without_loops_equals_the_compilers(name):
    f, *args = WITHOUT_LOOPS[name]
    compiled = jax.jit(f).lower(*args).compile()
    count = count_total(hlo_cost.count_bytes_accessed, hlo.Program(compiled.as_text()))
    assert count == compiled.cost_analysis()["bytes accessed"] > 0


def test_slices_move_the_bytes_of_the_slice(tpu):
    row = 8 * 128 * 4  # read from main memory into VMEM (space 1), and written back from there
    body = tpu.computations["body"]
    for name in ("read", "written"):
        assert hlo_cost.count_bytes_accessed(tpu, "body", body[name]) == row + body["n"].bytes


SCATTER = """HloModule rows

%put (table: f32[1000,8], ids: s32[4,1], rows: f32[4,8]) -> f32[1000,8] {
  %table = f32[1000,8]{1,0} parameter(0)
  %ids = s32[4,1]{1,0} parameter(1)
  %rows = f32[4,8]{1,0} parameter(2)
  ROOT %new = f32[1000,8]{1,0} scatter(%table, %ids, %rows), update_window_dims={1}, to_apply=%sum
}

ENTRY %main (a: f32[1000,8], b: s32[4,1], c: f32[4,8]) -> f32[1000,8] {
  %a = f32[1000,8]{1,0} parameter(0)
  %b = s32[4,1]{1,0} parameter(1)
  %c = f32[4,8]{1,0} parameter(2)
  %plain = f32[1000,8]{1,0} scatter(%a, %b, %c), update_window_dims={1}, to_apply=%sum
  ROOT %fused = f32[1000,8]{1,0} fusion(%plain, %b, %c), kind=kInput, calls=%put
}
"""


@pytest.mark.parametrize("name", ["plain", "fused"])
def test_a_scatter_moves_its_rows_and_not_the_table(name):
    program, ids, rows = hlo.Program(SCATTER), 4 * 4, 4 * 8 * 4
    instruction = program.computations["main"][name]
    # What a row was, what is added to it, and what it is.
    assert hlo_cost.count_bytes_accessed(program, "main", instruction) == ids + 3 * rows


def test_collectives_are_no_memory_traffic(tpu):
    other = 2 * 8 * 128 * 4  # [8, 64] in whole tiles, read and written
    assert hlo_cost.count_bytes_accessed(tpu, "main", tpu.computations["main"]["b"]) == other


def test_rematerialised_layers_save_nothing_but_their_inputs():
    def loss(ws, x, layer):
        return jax.lax.scan(lambda x, w: (layer(x, w), None), x, ws)[0].sum()

    def layer(x, w):
        return jnp.tanh(jnp.sin(x @ w) @ w)

    def saved_bytes(layer) -> int:
        step = jax.grad(functools.partial(loss, layer=layer))
        program = compile_program(step, F32((5, 32, 32)), F32((16, 32)))
        return sum(x.bytes for x in hlo_cost.list_saved_activations(program))

    assert saved_bytes(jax.checkpoint(layer)) == 5 * 16 * 32 * 4
    assert saved_bytes(layer) >= 3 * 5 * 16 * 32 * 4


def test_the_identity_has_no_cost():
    program = compile_program(lambda x: x, F32((3,)))
    assert count_total(hlo_cost.count_flops, program) == 0
    assert not hlo_cost.list_saved_activations(program)
