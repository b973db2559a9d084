"""A state is counted by what one device holds of it."""

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec

from pretrain.distributed.sharding import make_mesh
from pretrain.training import state_sizes


def test_a_sharded_array_counts_by_its_share():
    mesh = make_mesh(data=2, fsdp=4)
    specs = {"w": PartitionSpec("fsdp"), "b": PartitionSpec()}
    shapes = {"w": ((8, 3), jnp.float32), "b": ((5,), jnp.bfloat16)}
    like = {
        name: jax.ShapeDtypeStruct(*shape, sharding=NamedSharding(mesh, specs[name]))
        for name, shape in shapes.items()
    }
    assert state_sizes.count_numbers(like) == 8 * 3 + 5
    assert state_sizes.count_device_bytes(like) == 8 * 3 * 4 // 4 + 5 * 2
