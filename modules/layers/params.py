"""The pieces every backbone shares: weights, norm, feed-forward, softmax, dropout, stacks."""

from collections.abc import Callable, Iterable

import jax
import jax.numpy as jnp
from flax import linen as nn

from modules.activation_sharding import constrain_sharding, num_shards
from modules.layers.layer_stack import lean

normal = nn.initializers.normal
zeros = nn.initializers.zeros_init()
ones = nn.initializers.ones_init()


ACTIVATIONS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "gelu": lean(lambda x: jax.nn.gelu(x, approximate=True)),  # the originals' tanh form
    "gelu_erf": lean(lambda x: 0.5 * x * (1 + jax.lax.erf(x * 2**-0.5))),
    "relu": jax.nn.relu,
}


DTYPES = ("float32", "bfloat16", "float16", "float64")


def check(module: nn.Module, field: str, known: Iterable[str]) -> None:
    """ValueError naming the field unless its value is one of these."""
    value = getattr(module, field)
    if value not in known:
        raise ValueError(f"{field}={value!r} is none of {', '.join(known)}")


# Of a deviation ("truncated": beyond twice that drawn again), or "uniform" up to it on both sides.
INITIALIZERS: dict[str, Callable[[float], Callable]] = {
    "normal": normal,
    "truncated": nn.initializers.truncated_normal,
    "uniform": lambda scale: (
        lambda rng, shape, dtype: jax.random.uniform(rng, shape, dtype, -scale, scale)
    ),
}


def initializer(kind: str, scale: float) -> Callable:
    """One of `INITIALIZERS` of this scale."""
    return INITIALIZERS[kind](scale)


def weight(module: nn.Module, name: str, shape: tuple[int, ...], init: Callable) -> jax.Array:
    """A float32 parameter, cast to the module's compute dtype where it is used."""
    return held(name, module.param(name, init, shape, jnp.float32)).astype(module.dtype)


def held(name: str, w: jax.Array) -> jax.Array:
    """A parameter in the layout of its name's letters, and so its gradient, as soon as it is made.

    Else each device would sum up whole gradients, of which it keeps its share.
    """
    return constrain_sharding(w, name.rpartition("_")[2])


def found(x_BLD, V: int):
    """Rows of a table of V, [B, ..., D], from where it is split by width to where activations are.

    So they travel, and their gradient back, where they are fewer than V on each device; else the
    whole table does.
    """
    rest = "_" * (x_BLD.ndim - 2)
    if x_BLD.size > V * x_BLD.shape[-1] * num_shards("B"):
        return constrain_sharding(x_BLD, f"B{rest}D")
    x_BLD = jnp.moveaxis(constrain_sharding(jnp.moveaxis(x_BLD, -1, 0), "DB" + rest), 0, -1)
    return constrain_sharding(x_BLD, f"B{rest}D")
