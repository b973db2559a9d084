"""Grows parameters of a run for a model with more tokens, segments or positions."""

import numpy as np

from pretrain.distributed.sharding import parse_letters
from pretrain.runtime.errors import UserError


def grow_param(
    name: str, old: np.ndarray, new: np.ndarray, positions: str
) -> tuple[np.ndarray, str]:
    """Grows a parameter along the dimension in which the new one is larger, see `restore_params`.

    Raises:
        UserError: it is smaller, or larger in width.
    """
    letters = parse_letters(name)
    axes = [i for i, (a, b) in enumerate(zip(old.shape, new.shape, strict=True)) if a != b]
    letter = letters[axes[0]] if len(axes) == 1 == len(letters) - new.ndim + 1 else ""
    if letter not in ("V", "S", "L") or new.shape[axes[0]] < old.shape[axes[0]]:
        raise UserError(f"{name}: {new.shape} here, {old.shape} in the run to go on from")
    axis, more = axes[0], new.shape[axes[0]] - old.shape[axes[0]]
    if letter == "L" and positions == "interpolated":
        return interpolate(old, new.shape[axis], axis), f"grown: {more} positions, interpolated"
    rest = np.take(new, range(old.shape[axis], new.shape[axis]), axis)
    if letter != "L":
        # New rows and segments begin as the mean of those there are.
        rest = np.broadcast_to(old.mean(axis, keepdims=True), rest.shape)
    kind = "positions, drawn" if letter == "L" else "rows, the mean of the old"
    return np.concatenate([old, rest], axis), f"grown: {more} {kind}"


def interpolate(x: np.ndarray, size: int, axis: int) -> np.ndarray:
    """Spreads the entries of a dimension over more of them, linearly; the ends stay the ends."""
    places = np.linspace(0, x.shape[axis] - 1, size)
    # The last place lies a whole step above its neighbour, so that the last entry stays what it
    # was.
    below = np.minimum(places.astype(int), max(x.shape[axis] - 2, 0))
    share = (places - below).reshape([-1 if i == axis else 1 for i in range(x.ndim)])
    above = np.minimum(below + 1, x.shape[axis] - 1)
    return (1 - share) * np.take(x, below, axis) + share * np.take(x, above, axis)
