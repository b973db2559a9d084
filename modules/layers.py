"""The pieces every backbone shares: weights, norm, feed-forward, softmax, dropout, stacks."""

import functools
from collections.abc import Callable, Iterable
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

from modules.placement import placed, shards

normal = nn.initializers.normal
zeros = nn.initializers.zeros_init()
ones = nn.initializers.ones_init()


def lean(f: Callable) -> Callable:
    """`f`, entry by entry, of which nothing but the argument is kept for the backward pass."""
    rule = jax.custom_vjp(f)
    rule.defvjp(lambda x: (f(x), x), lambda x, dy: jax.vjp(f, x)[1](dy))
    return rule


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
    return placed(w, name.rpartition("_")[2])


class Norm(nn.Module):
    """LayerNorm over the last dimension, in float32 whatever the compute dtype."""

    epsilon: float = 1e-12

    @nn.compact
    def __call__(self, x_BLD):
        D = x_BLD.shape[-1]
        scale_D = self.param("scale_D", ones, (D,), jnp.float32)
        bias_D = self.param("bias_D", zeros, (D,), jnp.float32)
        return _normed(self.epsilon, x_BLD, scale_D, bias_D)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _normed(epsilon: float, x_BLD, scale_D, bias_D):
    y_BLD, _ = _standard(epsilon, x_BLD)
    return (y_BLD * scale_D + bias_D).astype(x_BLD.dtype)


def _standard(epsilon: float, x_BLD):
    """Of mean 0 and deviation 1, in float32; and what each row was multiplied by for that."""
    x_BLD = x_BLD.astype(jnp.float32)
    centred_BLD = x_BLD - x_BLD.mean(-1, keepdims=True)
    by_BL1 = jax.lax.rsqrt(jnp.square(centred_BLD).mean(-1, keepdims=True) + epsilon)
    return centred_BLD * by_BL1, by_BL1


def _normed_backward(epsilon: float, kept, dy_BLD):
    x_BLD, scale_D = kept
    y_BLD, by_BL1 = _standard(epsilon, x_BLD)  # again: cheaper than to keep it in float32
    dy_BLD = dy_BLD.astype(jnp.float32)
    rows = tuple(range(dy_BLD.ndim - 1))
    dscale_D, dbias_D = (dy_BLD * y_BLD).sum(rows), dy_BLD.sum(rows)
    dy_BLD *= scale_D
    common_BLD = dy_BLD.mean(-1, keepdims=True) + y_BLD * (dy_BLD * y_BLD).mean(-1, keepdims=True)
    return (by_BL1 * (dy_BLD - common_BLD)).astype(x_BLD.dtype), dscale_D, dbias_D


_normed.defvjp(
    lambda epsilon, x, scale, bias: (_normed(epsilon, x, scale, bias), (x, scale)), _normed_backward
)


@jax.custom_vjp
def dense(x_BLD, w_DF):
    """[B, L, D] times [D, F], with the gradient by `w_DF` in the form a CPU multiplies fastest."""
    return _product(x_BLD, w_DF)


def _product(x_BLD, w_DF):
    return jnp.einsum("BLD,DF->BLF", x_BLD, w_DF)


def _dense_backward(kept, dy_BLF):
    x_BLD, w_DF = kept

    def on_cpu(x_BLD, dy_BLF):
        # Whole operands in two dimensions: fused into its transpose, what makes x would be made
        # anew in an order that suits no cache.  A small transpose pays for a faster product.
        whole = jax.lax.optimization_barrier
        x_RD, dy_RF = (whole(each).reshape(-1, each.shape[-1]) for each in (x_BLD, dy_BLF))
        x_DR = whole(x_RD.T) if x_RD.shape[1] < dy_RF.shape[1] else x_RD.T
        return x_DR @ dy_RF

    def elsewhere(x_BLD, dy_BLF):
        return jnp.einsum("BLD,BLF->DF", x_BLD, dy_BLF)

    dw_DF = jax.lax.platform_dependent(x_BLD, dy_BLF, cpu=on_cpu, default=elsewhere)
    return jnp.einsum("BLF,DF->BLD", dy_BLF, w_DF), dw_DF


# Not `dense` within: a policy of what to keep (`REMAT`) sees products, but not through a rule.
dense.defvjp(lambda x_BLD, w_DF: (_product(x_BLD, w_DF), (x_BLD, w_DF)), _dense_backward)


def found(x_BLD, V: int):
    """Rows of a table of V, [B, ..., D], from where it is split by width to where activations are.

    So they travel, and their gradient back, where they are fewer than V on each device; else the
    whole table does.
    """
    rest = "_" * (x_BLD.ndim - 2)
    if x_BLD.size > V * x_BLD.shape[-1] * shards("B"):
        return placed(x_BLD, f"B{rest}D")
    x_BLD = jnp.moveaxis(placed(jnp.moveaxis(x_BLD, -1, 0), "DB" + rest), 0, -1)
    return placed(x_BLD, f"B{rest}D")


class FeedForward(nn.Module):
    """Two dense layers; dropout after the second and, as XLNet has it, `inside`: before it."""

    F: int
    activation: str = "gelu"
    dropout: float = 0.1
    inside: float = 0.1
    inwards: Callable = normal(0.02)
    outwards: Callable = normal(0.02)
    dtype: str = "float32"

    @nn.compact
    def __call__(self, x_BLD, *, train: bool):
        D = x_BLD.shape[-1]
        wi_DF = weight(self, "wi_DF", (D, self.F), self.inwards)
        bi_F = weight(self, "bi_F", (self.F,), zeros)
        wo_FD = weight(self, "wo_FD", (self.F, D), self.outwards)
        bo_D = weight(self, "bo_D", (D,), zeros)
        h_BLF = ACTIVATIONS[self.activation](dense(x_BLD, wi_DF) + bi_F)
        h_BLF = Dropout(self.inside)(h_BLF, train=train)
        return Dropout(self.dropout)(dense(h_BLF, wo_FD) + bo_D, train=train)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def softmax(scores, visible, dtype: Any = jnp.float32):
    """Softmax over the last axis among the visible; a row that sees nothing is all zeros.

    `visible` broadcasts against `scores`; True means visible.  Worked out in float32; only the
    result, of this dtype, is kept for the backward pass.
    """
    scores = jnp.where(visible, scores.astype(jnp.float32), -1e30)
    top = jnp.maximum(scores.max(-1, keepdims=True), -1e29)  # hidden scores end as exp(-huge) = 0
    e = jnp.exp(scores - top)
    return (e / jnp.maximum(e.sum(-1, keepdims=True), 1e-30)).astype(dtype)


def _softmax_forward(scores, visible, dtype):
    p = softmax(scores, visible, dtype)
    return p, (p, jnp.zeros((), scores.dtype))


def _softmax_backward(dtype, kept, dp):
    like = kept[1]
    p, dp = (x.astype(jnp.float32) for x in (kept[0], dp))
    ds = p * (dp - (p * dp).sum(-1, keepdims=True))
    return ds.astype(like.dtype), None


softmax.defvjp(_softmax_forward, _softmax_backward)


class Dropout(nn.Module):
    """Zeroes a fraction of the entries and scales up the rest.

    The mask is a hash of (key, position): it fuses into whatever surrounds it, is recomputed
    instead of stored for the backward pass, and is the same on any layout of devices.  Good
    enough to drop with; not a cryptographic generator.
    """

    rate: float

    @nn.compact
    def __call__(self, x, *, train: bool):
        if not train or self.rate == 0:
            return x
        words = jax.random.bits(self.make_rng("dropout"), (2,), jnp.uint32)
        return dropped(self.rate, x, words)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def dropped(rate: float, x, words):
    """`x` without a fraction of its entries, chosen by two uint32 words; the rest is scaled up."""
    kept = _hash(x.shape, words) >= jnp.uint32(min(rate * 2**32, 2**32 - 1))
    return jnp.where(kept, x * (1 / (1 - rate)), 0).astype(x.dtype)


dropped.defvjp(
    lambda rate, x, words: (dropped(rate, x, words), words),
    lambda rate, words, dy: (dropped(rate, dy, words), None),
)


def _hash(shape: tuple[int, ...], words) -> jax.Array:
    """Uniform uint32 of this shape: two multiply-xorshift rounds of the position and the key."""
    position = jnp.zeros(shape, jnp.uint32)
    for axis, size in enumerate(shape):
        position = position * jnp.uint32(size) + jax.lax.broadcasted_iota(jnp.uint32, shape, axis)
    x = position * jnp.uint32(0x9E3779B1) + words[0]
    x = (x ^ (x >> 16)) * jnp.uint32(0x85EBCA6B) + words[1]
    x = (x ^ (x >> 13)) * jnp.uint32(0xC2B2AE35)
    return x ^ (x >> 16)


def stacked(module: nn.Module, name: str, block: nn.Module, N: int, *example: Any, **kwargs: Any):
    """The parameters of N layers of `block`, each leaf with a leading layer dimension."""

    def init(rng):
        def one(key):
            return block.init(key, *example, **kwargs)["params"]  # type: ignore[call-arg]

        return jax.vmap(one)(jax.random.split(rng, N))

    return module.param(name, init)


def parted(tree, sizes: tuple[int, ...]) -> list:
    """The leaves cut along their first dimension into pieces of these sizes: a list of trees."""
    # lax.split: its gradient joins the pieces' gradients, where slices would add up padded ones.
    leaves, structure = jax.tree.flatten(tree)
    pieces = zip(*(jax.lax.split(x, sizes) for x in leaves), strict=True)
    return [jax.tree.unflatten(structure, piece) for piece in pieces]


# What the backward pass of a layer computes again.
REMAT: dict[str, Callable[[Callable], Callable]] = {
    "none": lambda f: f,
    "dots": functools.partial(
        jax.checkpoint, policy=jax.checkpoint_policies.dots_with_no_batch_dims_saveable
    ),
    "full": jax.checkpoint,
}
