"""Places tokens in their text, in characters of the text as it was given."""

from collections.abc import Iterable

import numpy as np

from pretrain.data.tokenizers import Offsets


def make_offsets(text: str, ids: Iterable[int], spans: Iterable[tuple[int, int]]) -> Offsets:
    """Builds the offsets of ids and their spans in the text, which may begin with blanks."""
    trimmed = [_strip_start(text, *span) for span in spans]
    starts_ends_n2 = np.array(trimmed, np.int32).reshape(-1, 2)
    return Offsets(np.array(ids, np.int32), starts_ends_n2[:, 0], starts_ends_n2[:, 1])


def _strip_start(text: str, start: int, end: int) -> tuple[int, int]:
    while start < end and text[start].isspace():
        start += 1
    return start, end
