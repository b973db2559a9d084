"""What a compiled program does is counted as often as it does it (hlo, compiled, collectives)."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, PartitionSpec

from pretrain.aot import collectives, hlo, hlo_cost

F32 = functools.partial(jax.ShapeDtypeStruct, dtype=jnp.float32)


def program(f, *args) -> hlo.Program:
    """`f`, compiled for this machine, as it is read back."""
    return hlo.Program(jax.jit(f).lower(*args).compile().as_text())


def total(count, program) -> float:
    return sum(
        times * count(program, name, i)
        for name, times in program.runs()
        for i in program.computations[name].values()
    )


def size(arrays) -> int:
    return sum(x.bytes for x in arrays)


def chain(x, ws):
    """x w1 w2 ..., a tanh after each."""
    return jax.lax.scan(lambda x, w: (jnp.tanh(x @ w), None), x, ws)[0]


# --- products --------------------------------------------------------------------------------


def test_a_loop_counts_as_often_as_it_turns():
    ran = program(chain, F32((16, 32)), F32((5, 32, 32)))
    assert total(hlo_cost.flops, ran) == 5 * 2 * 16 * 32 * 32


def test_a_loop_in_a_loop_counts_as_often_as_both_turn():
    def twice(x, ws):
        return jax.lax.scan(lambda x, _: (chain(x, ws), None), x, None, length=3)[0]

    ran = program(twice, F32((4, 8)), F32((5, 8, 8)))
    assert total(hlo_cost.flops, ran) == 3 * 5 * 2 * 4 * 8 * 8


def test_a_training_step_has_three_times_the_products_of_its_forward_pass():
    def loss(ws, x):
        return jnp.square(chain(x, ws)).sum()

    ran = program(jax.grad(loss, argnums=(0, 1)), F32((5, 32, 32)), F32((16, 32)))
    assert total(hlo_cost.flops, ran) == 3 * 5 * 2 * 16 * 32 * 32


@pytest.mark.parametrize(
    ("equation", "sizes"),
    [("bij,bjk->bik", (3, 4, 5, 6)), ("bij,kj->bik", (2, 3, 4, 5)), ("ijk,jkb->ib", (2, 3, 4, 5))],
)
def test_a_product_has_an_operation_for_every_index(equation, sizes):
    letters = dict(zip("bijk", sizes, strict=True))
    given = [F32([letters[x] for x in side]) for side in equation.split("->")[0].split(",")]
    ran = program(functools.partial(jnp.einsum, equation), *given)
    assert total(hlo_cost.flops, ran) == 2 * math.prod(sizes)


@pytest.mark.parametrize("padding", [((1, 1), (0, 1)), ((0, 0), (2, 0))])
@pytest.mark.parametrize(("stride", "dilation"), [(1, 1), (2, 1), (1, 3)])
def test_a_convolution_has_as_many_operations_as_the_compiler_says(padding, stride, dilation):
    convolve = functools.partial(
        jax.lax.conv_general_dilated,
        window_strides=(stride, 1),
        padding=padding,
        lhs_dilation=(dilation, 1),
    )
    made = jax.jit(convolve).lower(F32((2, 3, 9, 7)), F32((4, 3, 3, 2))).compile()
    found = total(hlo_cost.flops, hlo.Program(made.as_text()))
    assert found == made.cost_analysis()["flops"] > 0


def test_the_entries_that_a_window_meets_are_those_that_trying_finds():
    draw = np.random.default_rng(0)
    for _ in range(300):
        size, wide, places, stride, dilated, spread = (int(n) for n in draw.integers(1, 7, 6))
        before = int(draw.integers(-3, 5))
        window = dict(stride=stride, lhs_dilate=dilated, rhs_dilate=spread, pad=f"{before}_0")
        real = set(range(0, (size - 1) * dilated + 1, dilated))
        tried = sum(
            o * stride + j * spread - before in real for o in range(places) for j in range(wide)
        )
        texts = {name: str(value) for name, value in window.items()}
        assert hlo_cost._meetings(size, wide, places, texts) == tried


def test_only_the_longer_branch_of_a_conditional_counts():
    def either(long, a, b):
        return jax.lax.cond(long, lambda: a @ b @ b, lambda: a @ b)

    ran = program(either, jax.ShapeDtypeStruct((), bool), F32((8, 8)), F32((8, 8)))
    assert total(hlo_cost.flops, ran) == 2 * 2 * 8**3


def test_a_loop_that_ends_when_the_data_want_counts_once_and_is_named():
    def loop(a, b):
        return jax.lax.while_loop(lambda x: x.sum() < 10, lambda x: x @ b, a)

    ran = program(loop, F32((8, 8)), F32((8, 8)))
    assert total(hlo_cost.flops, ran) == 2 * 8**3
    assert [name.split("/")[-1] for name in ran.endless()] == ["while"]
    assert not program(chain, F32((16, 32)), F32((5, 32, 32))).endless()


# --- memory ----------------------------------------------------------------------------------

# As a TPU's compiler reports them of programs that it was given.
SIZES = {
    "f32[24,64]{1,0:T(8,128)}": 12 * 2**10,
    "f32[30522]{0:T(1024)}": 120 * 2**10,
    "f32[512,64]{0,1:T(8,128)}": 128 * 2**10,
    "bf16[256,64]{0,1:T(8,128)(2,1)}": 32768,
    "bf16[256,1024]{0,1:T(8,128)(2,1)}": 524288,
    "f32[512,64]{1,0}": 128 * 2**10,
    "pred[7]{0}": 7,
    "u32[]{:S(2)}": 4,
}


@pytest.mark.parametrize("text", SIZES)
def test_an_array_takes_whole_tiles_of_memory(text):
    (parts,) = hlo.ARRAY.findall(text)
    assert hlo.array(*parts).bytes == SIZES[text]


def dense(a, b):
    return jnp.tanh(a @ b) + 1


def row(a, n):
    return jnp.sin(jax.lax.dynamic_index_in_dim(a, n, 0))


def with_row(a, n, b):
    return jax.lax.dynamic_update_index_in_dim(a, jnp.sin(b), n, 0)


INDEX = jax.ShapeDtypeStruct((), jnp.int32)
STRAIGHT = {  # without a loop; what is read in parts, by a fusion
    "product": (jnp.matmul, F32((16, 32)), F32((32, 8))),
    "dense": (dense, F32((64, 128)), F32((128, 32))),
    "softmax": (lambda a, b: jax.nn.softmax(a @ b), F32((64, 128)), F32((128, 32))),
    "row": (row, F32((64, 128)), INDEX),
    "with a row": (with_row, F32((64, 128)), INDEX, F32((128,))),
    "turned": (lambda a: a.T + 1, F32((64, 128))),
}


@pytest.mark.parametrize("name", STRAIGHT)
def test_a_program_without_loops_moves_as_many_bytes_as_the_compiler_says(name):
    f, *given = STRAIGHT[name]
    made = jax.jit(f).lower(*given).compile()
    found = total(hlo_cost.traffic, hlo.Program(made.as_text()))
    assert found == made.cost_analysis()["bytes accessed"] > 0


def test_recomputed_layers_keep_nothing_but_their_inputs():
    def loss(ws, x, layer):
        return jax.lax.scan(lambda x, w: (layer(x, w), None), x, ws)[0].sum()

    def layer(x, w):
        return jnp.tanh(jnp.sin(x @ w) @ w)

    given = F32((5, 32, 32)), F32((16, 32))
    kept = [
        size(hlo_cost.kept(program(jax.grad(functools.partial(loss, layer=f)), *given)))
        for f in (jax.checkpoint(layer), layer)
    ]
    assert kept[0] == 5 * 16 * 32 * 4
    assert kept[1] >= 3 * kept[0]


# --- collectives -----------------------------------------------------------------------------

GROUPS = {  # attribute -> a test of two devices: are they in one group?
    "replica_groups={{0,2},{1,3},{4,6},{5,7}}": lambda a, b: a // 4 == b // 4 and a % 2 == b % 2,
    "replica_groups=[4,2]<=[8]": lambda a, b: a // 2 == b // 2,
    "replica_groups=[2,4]<=[4,2]T(1,0)": lambda a, b: a % 2 == b % 2,
    "replica_groups=[2,4]<=[2,2,2]T(1,0,2)": lambda a, b: a // 2 % 2 == b // 2 % 2,
    "replica_groups=mesh['x'=2,'y'=4] {'x'}": lambda a, b: a % 4 == b % 4,
    "replica_groups=mesh['x'=2,'y'=4] {'x','y'}": lambda a, b: True,
    "replica_groups=mesh['x'=2,'y'=4] {'y':(2)2}": lambda a, b: a // 2 == b // 2,
    "replica_groups=mesh['x'=2,'y'=4] {'y':(1)2}": lambda a, b: a // 4 == b // 4 and a % 2 == b % 2,
    "replica_groups={}": lambda a, b: True,
}


@pytest.mark.parametrize("text", GROUPS)
def test_the_first_group_is_that_of_device_0_however_it_is_written(text):
    assert collectives.groups(f"channel_id=1, {text}, dimensions={{0}}", 8) == [
        device for device in range(8) if GROUPS[text](0, device)
    ]


@pytest.fixture(scope="module")
def talk():
    """kind -> the collective of that kind in a loop of 3 turns, of 16 floats on each of 2 x 4."""
    mesh = jax.make_mesh((2, 4), ("a", "b"), axis_types=(AxisType.Auto,) * 2)

    def turn(x, _):
        every = jax.lax.all_gather(x, "b")
        parts = jax.lax.psum_scatter(every.sum(0), "b", tiled=True)
        around = jax.lax.ppermute(x, "b", [(n, (n + 1) % 4) for n in range(4)])
        return jax.lax.psum(x, "a") + around + parts.sum(), None

    def loop(x):
        return jax.lax.scan(turn, x, None, length=3)[0]

    spec = PartitionSpec(("a", "b"))
    split = jax.shard_map(loop, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False)
    found = collectives.collectives(program(split, F32((8 * 16,))), 8)
    assert len({each.kind for each in found}) == len(found)
    return {each.kind: each for each in found}


TALK = {  # kind -> devices that meet, bytes made, bytes that each has to receive
    "all-gather": ((0, 1, 2, 3), 4 * 64, 3 * 64),
    "all-reduce": ((0, 4), 64, 64),
    "reduce-scatter": ((0, 1, 2, 3), 16, 3 * 16),
    "collective-permute": ((0, 1), 64, 64),
}


@pytest.mark.parametrize("kind", TALK)
def test_a_collective_counts_with_its_devices_and_bytes(talk, kind):
    group, made, received = TALK[kind]
    found = talk[kind]
    assert (found.group, found.bytes, found.received) == (group, made, received)
    assert found.times == 3
    assert found.op_name.startswith("jit(")


def test_nothing_else_counts_as_a_collective(talk):
    assert set(talk) == set(TALK)


# --- what only a TPU's compiler writes -------------------------------------------------------

TPU = """HloModule jit_step, is_scheduled=true

%gathered (param_0: bf16[4,64]) -> bf16[16,64] {
  %param_0 = bf16[4,64]{1,0:T(8,128)(2,1)} parameter(0)
  %gather.1 = bf16[16,64]{1,0:T(8,128)(2,1)} all-gather(%param_0), channel_id=1, replica_groups=[1,4]<=[4], dimensions={0}, frontend_attributes={chain_id="0"}
  ROOT %start = (bf16[4,64]{1,0}, bf16[16,64]{1,0}, u32[]{:S(2)}) custom-call(%gather.1), custom_call_target="AsyncCollectiveStart"
}

%beside (param_0.1: bf16[4,64], param_1: f32[8,64]) -> (bf16[16,64], f32[8,64]) {
  %param_0.1 = bf16[4,64]{1,0:T(8,128)(2,1)} parameter(0)
  %param_1 = f32[8,64]{1,0:T(8,128)} parameter(1)
  %gather.2 = bf16[16,64]{1,0:T(8,128)(2,1)} all-gather(%param_0.1), channel_id=1, replica_groups=[1,4]<=[4], dimensions={0}, frontend_attributes={chain_id="0"}
  %more = f32[8,64]{1,0:T(8,128)} negate(%param_1)
  ROOT %both = (bf16[16,64]{1,0:T(8,128)(2,1)}, f32[8,64]{1,0:T(8,128)}) tuple(%gather.2, %more)
}

%scattered (param_0.2: f32[16,64]) -> f32[4,64] {
  %param_0.2 = f32[16,64]{1,0:T(8,128)} parameter(0)
  %reduced = f32[16,64]{1,0:T(8,128)} all-reduce(%param_0.2), channel_id=2, replica_groups={{0,1,2,3}}, to_apply=%sum
  %zero = u32[] constant(0)
  ROOT %part = f32[4,64]{1,0:T(8,128)} dynamic-slice(%reduced, %zero, %zero), dynamic_slice_sizes={4,64}
}

%row (param_0.3: f32[12,8,128], param_1.3: s32[]) -> f32[1,8,128] {
  %param_0.3 = f32[12,8,128]{2,1,0:T(8,128)} parameter(0)
  %param_1.3 = s32[]{:T(128)} parameter(1)
  %zero.1 = s32[]{:T(128)} constant(0)
  ROOT %cut = f32[1,8,128]{2,1,0:T(8,128)} dynamic-slice(%param_0.3, %param_1.3, %zero.1, %zero.1), dynamic_slice_sizes={1,8,128}
}

%into (param_0.4: f32[12,8,128], param_1.4: f32[1,8,128], param_2.4: s32[]) -> f32[12,8,128] {
  %param_0.4 = f32[12,8,128]{2,1,0:T(8,128)} parameter(0)
  %param_1.4 = f32[1,8,128]{2,1,0:T(8,128)S(1)} parameter(1)
  %param_2.4 = s32[]{:T(128)} parameter(2)
  %zero.2 = s32[]{:T(128)} constant(0)
  ROOT %put = f32[12,8,128]{2,1,0:T(8,128)} dynamic-update-slice(%param_0.4, %param_1.4, %param_2.4, %zero.2, %zero.2)
}

%body (state: (s32[], f32[12,8,128], f32[12,8,128])) -> (s32[], f32[12,8,128], f32[12,8,128]) {
  %two = s32[]{:T(128)} constant(2)
  %state = (s32[]{:T(128)}, f32[12,8,128]{2,1,0:T(8,128)}, f32[12,8,128]{2,1,0:T(8,128)}) parameter(0)
  %n = s32[]{:T(128)} get-tuple-element(%state), index=0
  %copied = s32[]{:T(128)} copy(%n)
  %next = s32[]{:T(128)} add(%copied, %two)
  %from = f32[12,8,128]{2,1,0:T(8,128)} get-tuple-element(%state), index=1
  %to = f32[12,8,128]{2,1,0:T(8,128)} get-tuple-element(%state), index=2
  %read = f32[1,8,128]{2,1,0:T(8,128)S(1)} fusion(%from, %n), kind=kLoop, calls=%row
  %written = f32[12,8,128]{2,1,0:T(8,128)} fusion(%to, %read, %n), kind=kLoop, calls=%into
  ROOT %after = (s32[]{:T(128)}, f32[12,8,128]{2,1,0:T(8,128)}, f32[12,8,128]{2,1,0:T(8,128)}) tuple(%next, %from, %written)
}

%condition (state.1: (s32[], f32[12,8,128], f32[12,8,128])) -> pred[] {
  %bound = s32[]{:T(128)} constant(11)
  %state.1 = (s32[]{:T(128)}, f32[12,8,128]{2,1,0:T(8,128)}, f32[12,8,128]{2,1,0:T(8,128)}) parameter(0)
  %n.1 = s32[]{:T(128)} get-tuple-element(%state.1), index=0
  ROOT %below = pred[]{:T(512)} compare(%n.1, %bound), direction=LT
}

ENTRY %main (w: bf16[4,64], x: f32[8,64], g: f32[16,64], s: (s32[], f32[12,8,128], f32[12,8,128]), q: bf16[4,128,2,64], k: bf16[4,128,2,64]) -> f32[4,64] {
  %w = bf16[4,64]{1,0:T(8,128)(2,1)} parameter(0), metadata={op_name="state.params[\\'w\\']"}
  %x = f32[8,64]{1,0:T(8,128)} parameter(1), metadata={op_name="batch[\\'x\\']"}
  %g = f32[16,64]{1,0:T(8,128)} parameter(2)
  %s = (s32[]{:T(128)}, f32[12,8,128]{2,1,0:T(8,128)}, f32[12,8,128]{2,1,0:T(8,128)}) parameter(3)
  %q = bf16[4,128,2,64]{1,3,2,0:T(8,128)(2,1)} parameter(4)
  %k = bf16[4,128,2,64]{1,3,2,0:T(8,128)(2,1)} parameter(5)
  %a = (bf16[4,64]{1,0}, bf16[16,64]{1,0}, u32[]{:S(2)}) fusion(%w), kind=kCustom, calls=%gathered
  %b = (bf16[16,64]{1,0:T(8,128)(2,1)}, f32[8,64]{1,0:T(8,128)}) fusion(%w, %x), kind=kOutput, calls=%beside
  %loop = (s32[]{:T(128)}, f32[12,8,128]{2,1,0:T(8,128)}, f32[12,8,128]{2,1,0:T(8,128)}) while(%s), condition=%condition, body=%body
  %scores = bf16[4,2,128,128]{2,3,1,0:T(8,128)(2,1)S(1)} convolution(%q, %k), window={size=4x2 stride=3x1 lhs_dilate=4x2}, dim_labels=0b1f_0o1i->01bf
  ROOT %r = f32[4,64]{1,0:T(8,128)} fusion(%g), kind=kCustom, calls=%scattered
}
"""  # noqa: E501


@pytest.fixture(scope="module")
def tpu() -> hlo.Program:
    return hlo.Program(TPU)


def test_a_collective_in_pieces_counts_once(tpu):
    kinds = [each.kind for each in collectives.collectives(tpu, 4)]
    assert sorted(kinds) == ["all-gather", "reduce-scatter"]


def test_an_all_reduce_of_which_a_slice_is_kept_is_a_reduce_scatter(tpu):
    found = collectives.collectives(tpu, 4)[-1]
    assert (found.bytes, found.received) == (4 * 64 * 4, 3 * 4 * 64 * 4)


def test_a_loop_that_the_compiler_unrolled_turns_less_often(tpu):
    """Counters 0, 2, ..., 10 are below 11."""
    assert dict(tpu.runs())["body"] == 6


def test_of_what_is_cut_the_slice_is_read_and_of_what_is_set_the_slice_is_written(tpu):
    row = 8 * 128 * 4  # read from memory into VMEM (space 1), and written back from there
    own = tpu.computations["body"]
    index = own["n"].bytes
    assert hlo_cost.traffic(tpu, "body", own["read"]) == row + index
    assert hlo_cost.traffic(tpu, "body", own["written"]) == row + index


def test_what_a_collective_moves_is_not_the_other_works_traffic(tpu):
    other = 2 * 8 * 128 * 4  # [8, 64] in whole tiles, read and written
    assert hlo_cost.traffic(tpu, "main", tpu.computations["main"]["b"]) == other


def test_a_batch_of_products_that_is_written_as_a_convolution_has_their_operations(tpu):
    """[B, L, H, K] times [B, J, H, K]: B and H are windows over dilated rows."""
    scores = tpu.computations["main"]["scores"]
    assert hlo_cost.flops(tpu, "main", scores) == 2 * 4 * 2 * 128 * 128 * 64


def test_a_program_of_nothing_does_nothing():
    ran = program(lambda x: x, F32((3,)))
    assert not collectives.collectives(ran, 8)
    assert total(hlo_cost.flops, ran) == 0
    assert not hlo_cost.kept(ran)
    np.testing.assert_equal(len(list(ran.runs())), 1)
