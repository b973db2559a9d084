"""Collectives are found with their devices, bytes and counts, in any notation."""

import jax
import pytest
from jax.sharding import AxisType, PartitionSpec

from pretrain.aot import collectives, hlo
from tests.support.hlo_programs import F32, TPU, compile_program

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


def test_the_first_group_is_read_in_every_notation():
    for text, is_together in GROUPS.items():
        group = collectives.parse_first_group(f"channel_id=1, {text}, dimensions={{0}}", 8)
        assert group == [device for device in range(8) if is_together(0, device)], text


EXPECTED = {  # kind -> devices that meet, bytes of the result, bytes that each receives
    "all-gather": ((0, 1, 2, 3), 4 * 64, 3 * 64),
    "all-reduce": ((0, 4), 64, 64),
    "reduce-scatter": ((0, 1, 2, 3), 16, 3 * 16),
    "collective-permute": ((0, 1), 64, 64),
}


@pytest.fixture(scope="module")
def in_a_loop():
    """The collectives in a loop of 3 iterations, of 16 floats on each of 2 x 4 devices."""
    mesh = jax.make_mesh((2, 4), ("a", "b"), axis_types=(AxisType.Auto,) * 2)

    def body(x, _):
        every = jax.lax.all_gather(x, "b")
        parts = jax.lax.psum_scatter(every.sum(0), "b", tiled=True)
        around = jax.lax.ppermute(x, "b", [(n, (n + 1) % 4) for n in range(4)])
        return jax.lax.psum(x, "a") + around + parts.sum(), None

    def loop(x):
        return jax.lax.scan(body, x, None, length=3)[0]

    spec = PartitionSpec(("a", "b"))
    split = jax.shard_map(loop, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False)
    return collectives.find_collectives(compile_program(split, F32((8 * 16,))), 8)


def test_each_collective_is_found_once(in_a_loop):
    assert sorted(x.kind for x in in_a_loop) == sorted(EXPECTED)


def test_collectives_have_their_devices_bytes_and_count(in_a_loop):
    for x in in_a_loop:
        assert (x.group, x.bytes, x.bytes_received) == EXPECTED[x.kind]
        assert x.count == 3
        assert x.op_name.startswith("jit(")


def test_a_program_of_one_device_has_none():
    assert not collectives.find_collectives(compile_program(lambda x: x, F32((3,))), 8)


def test_a_tpus_split_and_fused_collectives_count_once():
    gather, scatter = collectives.find_collectives(hlo.Program(TPU), 4)
    assert (gather.kind, scatter.kind) == ("all-gather", "reduce-scatter")
    assert (scatter.bytes, scatter.bytes_received) == (4 * 64 * 4, 3 * 4 * 64 * 4)
