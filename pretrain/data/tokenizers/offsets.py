"""Where in a text its tokens stand, in characters of the text as it was given."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np


class Offsets(NamedTuple):
    """A text's tokens; each stands in text[start:end], without the blanks before it.

    Attributes:
        ids: [n] int32, as `encode` has them.
        starts, ends: [n] int32; equal for a token that stands for blanks alone.
    """

    ids: np.ndarray
    starts: np.ndarray
    ends: np.ndarray


def placed(text: str, ids: Iterable[int], spans: Iterable[tuple[int, int]]) -> Offsets:
    """Of tokens and their spans in the text, which may begin with blanks."""
    trimmed = [_trimmed(text, *span) for span in spans]
    starts_ends_n2 = np.array(trimmed, np.int32).reshape(-1, 2)
    return Offsets(np.array(ids, np.int32), starts_ends_n2[:, 0], starts_ends_n2[:, 1])


def _trimmed(text: str, start: int, end: int) -> tuple[int, int]:
    while start < end and text[start].isspace():
        start += 1
    return start, end
