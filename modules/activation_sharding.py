"""Sharding of activations: a module names an array's dimensions, the layout decides the rest.

Outside `sharding_context` nothing is constrained, so modules run as they are on one device.
"""

import contextlib
import contextvars
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol, TypeVar

import jax

Form = TypeVar("Form")


class ActivationSharding(Protocol):
    """Constrains and counts shards; `pretrain.distributed.sharding.Layout` is one."""

    @property
    def device(self) -> jax.Device:
        """Returns one of the devices, which are all of a kind."""
        ...

    def constrain(self, x: jax.Array, letters: str) -> jax.Array:
        """Returns `x`, constrained to the sharding of its letters."""
        ...

    def num_shards(self, letter: str) -> int:
        """Counts the devices that a dimension of this letter is split over."""
        ...

    def reduce_to_shards(self, shares_B: jax.Array, letters: str) -> jax.Array:
        """Sums over the first dimension, which has one entry per device."""
        ...

    def map_shards(self, f: Callable, arrays: Sequence, letters: list[str], results: list[str]):
        """Calls `f` on every device with its shards of the arrays, for its shards of the results.

        Args:
            letters, results: dimensions of each array, and of each result.
        """
        ...


# A context and no argument: a module deep inside others constrains what only it can name.
_current: contextvars.ContextVar[ActivationSharding | None] = contextvars.ContextVar(
    "activation_sharding", default=None
)


@contextlib.contextmanager
def sharding_context(sharding: ActivationSharding) -> Iterator[None]:
    """Lays out everything traced inside by `sharding`."""
    token = _current.set(sharding)
    try:
        yield
    finally:
        _current.reset(token)


def constrain_sharding(x: jax.Array, letters: str) -> jax.Array:
    """Constrains an array to the sharding of its letters, "BLD"; one of `_` stays whole."""
    sharding = _current.get()
    return sharding.constrain(x, letters) if sharding else x


def scatter_positions(x_BLD: jax.Array) -> jax.Array:
    """Gives the devices that share a layer's heads a part of the positions each.

    All of them would hold, norm and drop out the same states.  What they have summed up by heads
    is sent to where the sum is kept, and `gather_positions` sends it on: as many bytes as if all
    kept all.  Positions that do not divide stay whole; the gradient takes the way back.
    """
    return _reshard_positions(x_BLD, "BTD", "BLD")


def gather_positions(x_BLD: jax.Array) -> jax.Array:
    """Gives every device all positions again, see `scatter_positions`."""
    return _reshard_positions(x_BLD, "BLD", "BTD")


def _reshard_positions(x_BLD, letters: str, grad_letters: str):
    parts = num_shards("T")
    # A program for devices that share nothing is told nothing.
    if parts == 1 or x_BLD.shape[1] % parts:
        return constrain_sharding(x_BLD, "BLD")
    return _constrain_both_ways(x_BLD, letters, grad_letters)


# JAX would constrain the gradient to the sharding of the result: to gather what is to be summed,
# and to sum what is to be scattered.
@functools.partial(jax.custom_vjp, nondiff_argnums=(1, 2))
def _constrain_both_ways(x_BLD, letters: str, grad_letters: str):
    return constrain_sharding(x_BLD, letters)


_constrain_both_ways.defvjp(
    lambda x_BLD, letters, _: (constrain_sharding(x_BLD, letters), None),
    lambda _, grad_letters, __, dx_BLD: (constrain_sharding(dx_BLD, grad_letters),),
)


def num_shards(letter: str) -> int:
    """Counts the devices that this dimension is split over; 1 outside `sharding_context`."""
    sharding = _current.get()
    return sharding.num_shards(letter) if sharding else 1


def reduce_to_shards(shares_B: jax.Array, letters: str) -> jax.Array:
    """Sums the devices' partial sums; each device keeps the shard that the letters give it.

    Args:
        shares_B: one partial sum per device of the batch, [num_shards("B"), ...].
        letters: dimensions of the sum.
    """
    sharding = _current.get()
    # Without a layout there is one device, and one partial sum.
    return sharding.reduce_to_shards(shares_B, letters) if sharding else shares_B.sum(0)


def map_shards(f: Callable, arrays: Sequence, letters: list[str], results: list[str]):
    """Calls what the compiler cannot split on every device, with the device's shards.

    Args:
        f: from arrays to a list of results.
        letters, results: dimensions of each array, and of each result; what is split must divide.
    """
    sharding = _current.get()
    return sharding.map_shards(f, arrays, letters, results) if sharding else f(*arrays)


def find_device() -> jax.Device:
    """Returns one of the devices, all of a kind, that what is traced now will run on."""
    sharding = _current.get()
    # They need not be here: a step may be compiled for machines that are elsewhere.
    return sharding.device if sharding else jax.devices()[0]


def choose_form(forms: Mapping[str, Form]) -> Form:
    """Returns the form for the platform that is traced for.

    `jax.lax.platform_dependent` traces all forms, and chooses when the program is lowered: it is
    for forms that are traced quickly and that take and return arrays alone.
    """
    return forms.get(find_device().platform, forms["default"])
