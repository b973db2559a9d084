"""Where activations live: a module says which letters an array has, the machine decides the rest.

Outside `placing` nothing is constrained, so modules run as they are on one device.
"""

import contextlib
import contextvars
from collections.abc import Iterator
from typing import Protocol

import jax


class Placement(Protocol):
    """What a machine lends to the modules; `pretrain.distributed.sharding.Layout` is one."""

    def place(self, x: jax.Array, letters: str) -> jax.Array:
        """`x`, constrained to the layout its letters ask for."""
        ...

    def shards(self, letter: str) -> int:
        """Over how many devices a dimension of this letter is split."""
        ...

    def total(self, shares_B: jax.Array, letters: str) -> jax.Array:
        """The sum over the first dimension, which has an entry of each device; see `total`."""
        ...


_current: contextvars.ContextVar[Placement | None] = contextvars.ContextVar(
    "placement", default=None
)


@contextlib.contextmanager
def placing(placement: Placement) -> Iterator[None]:
    """Everything traced inside is laid out by `placement`."""
    token = _current.set(placement)
    try:
        yield
    finally:
        _current.reset(token)


def placed(x: jax.Array, letters: str) -> jax.Array:
    """`placed(h_BLD, "BLD")`: the array itself, laid out as the machine wants its letters.

    A dimension of `_` stays whole.
    """
    placement = _current.get()
    return placement.place(x, letters) if placement else x


def shards(letter: str) -> int:
    """Over how many devices this dimension is split; 1 outside `placing`."""
    placement = _current.get()
    return placement.shards(letter) if placement else 1


def total(shares_B: jax.Array, letters: str) -> jax.Array:
    """What the devices have added up, [shards("B"), ...], all together, where its letters live."""
    placement = _current.get()
    return placement.total(shares_B, letters) if placement else shares_B.sum(0)
