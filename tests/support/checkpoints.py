"""States to be saved, on any layout, and their comparison to the bit."""

import flax
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from pretrain.checkpoint.manager import Checkpoints


@flax.struct.dataclass
class State:
    step: jax.Array
    params: dict
    carry: dict
    opt: tuple


def state(seed=0) -> State:
    keys = iter(jax.random.split(jax.random.key(seed), 4))
    backbone = {
        "token_VD": jax.random.normal(next(keys), (16, 8)),
        "layers": {"w_DF": jax.random.normal(next(keys), (2, 8, 24), jnp.bfloat16)},
        "minus_zero_D": -jnp.zeros(8),
    }
    params = {"backbone": backbone, "head": {"b_C": jax.random.normal(next(keys), (8,))}}
    carry = {"memory": {"h_BMD": jax.random.normal(next(keys), (8, 2, 8), jnp.float16)}}
    carry["memory"] |= {"live_B": jnp.arange(8) % 3 == 0, "seen": jnp.int8(-3)}
    tx = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-3))
    return State(jnp.int32(seed), params, carry, tx.init(params))


def assert_same(found, expected):
    def same(a, b):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes()

    jax.tree.map(same, found, expected)


@pytest.fixture
def opened():
    """Opens Checkpoints and closes them at the end."""
    everything = []

    def open_in(workdir, **options):
        everything.append(Checkpoints(workdir, **options))
        return everything[-1]

    yield open_in
    for checkpoints in everything:
        checkpoints.close()


def laid_out(tree, mesh_shape):
    """`tree` over a mesh: matrices by their first dimension over "data", their second the rest."""
    size = int(np.prod(mesh_shape))
    axes = ("data", "fsdp", "tensor")
    mesh = jax.make_mesh(
        mesh_shape, axes, devices=jax.devices()[:size], axis_types=(AxisType.Auto,) * 3
    )

    def place(leaf):
        fits = [leaf.shape[i : i + 1] != () and leaf.shape[i] % 8 == 0 for i in range(2)]
        spec = P(*(axis if ok else None for axis, ok in zip(("data", axes[1:]), fits, strict=True)))
        return jax.device_put(leaf, NamedSharding(mesh, spec if leaf.ndim > 1 else P()))

    return jax.tree.map(place, tree)


def abstract(tree):
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), tree)
