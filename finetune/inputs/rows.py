"""Frames texts as rows of tokens, in a system's text format (`pretrain.inference.text_formats`)."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from pretrain.data.tokenizers import Tokenizer
from pretrain.data.tokenizers.character_ids import spell_words
from pretrain.inference.text_format import TextFormat, mark_ids
from pretrain.runtime.errors import UserError


class Row(NamedTuple):
    """Texts in one row.

    Attributes:
        ids: [n] tokens, or [n, W] characters of words.
        segments: [n], the number of each token's text.
        starts: index of each text's first token in the row; -1 if nothing of it is left.
        cut: number of tokens left out.
    """

    ids: np.ndarray
    segments: np.ndarray
    starts: list[int]
    cut: int


class RowBuilder:
    """Turns texts into arrays for a backbone.

    Attributes:
        format: the system's text format.
        new: rows of the embedding that pretraining lacked, for the format's new tokens.
        L: positions of a row.
    """

    def __init__(
        self,
        format: TextFormat,
        tokenizer: Tokenizer,
        L: int,
        *,
        W: int = 0,
        V: int = 0,
        S: int | None = None,
    ):
        """
        Args:
            W: characters of a word; 0: the backbone reads ids.
            V: rows of the embedding, whose last are the new tokens'; 0: they follow those of
                the tokenizer.
            S: segments of the backbone; None: as many as the format has.

        Raises:
            UserError: the tokenizer lacks a mark.
        """
        self.format, self.tokenizer, self.L, self.W = format, tokenizer, L, W
        self.S = format.segments if S is None else min(S, format.segments)
        self.new = len(format.new_tokens)
        first = V - self.new if V else tokenizer.V
        # At the end of the table, which may be padded: an id between is then no token at all.
        new_ids = {name: first + i for i, name in enumerate(format.new_tokens)}
        names = [name for name in format.marks if name not in new_ids]
        self._ids = new_ids | dict(zip(names, mark_ids(names, tokenizer.special), strict=True))

    def tokens(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Encodes each text in its order of reading: ids [n], or characters [n, W] of words."""
        if self.W:
            words = self.tokenizer.words(texts)  # type: ignore[attr-defined]
            tokens = [spell_words(text, self.W) for text in words]
        else:
            tokens = [np.asarray(ids, np.int32) for ids in self.tokenizer.encode(list(texts))]
        return [x[::-1] for x in tokens] if self.format.backward else tokens

    def marks(self, names: Sequence[str]) -> np.ndarray:
        """Encodes the marks of these names as `tokens` encodes texts."""
        ids = [self._ids[name] for name in names]
        if not self.W:
            return np.array(ids, np.int32)
        # Where words are spelled, marks are words, too.
        return spell_words([self.tokenizer.pieces[i] for i in ids], self.W)

    def row(self, tokens: Sequence[np.ndarray], keep: Sequence[int] = ()) -> Row:
        """Frames the tokens of texts as one row; too long a row loses the end of its longest text.

        Args:
            keep: numbers of the texts that lose tokens only where no other has any.
        """
        format, last = self.format, len(tokens) - 1
        # A third text follows the second as that follows the first.
        marks = len(format.before) + last * len(format.between) + len(format.after)
        room = self.L - marks - len(format.last)
        lengths, cut = truncate_lengths([len(x) for x in tokens], room, keep)
        parts, segments, starts = [self.marks(format.before)], [0] * len(format.before), []
        for number, (text, n) in enumerate(zip(tokens, lengths, strict=True)):
            starts.append(len(segments) if n else -1)
            behind = self.marks(format.between if number < last else format.after)
            parts += [text[:n], behind]
            segments += [number] * (n + len(behind))  # a mark is of the text before it
        parts.append(self.marks(format.last))
        segments += [format.last_segment] * len(format.last)
        return Row(np.concatenate(parts), np.array(segments, np.int32), starts, cut)

    def arrays(self, rows: Sequence[Row]) -> dict[str, np.ndarray]:
        """Pads rows to L, on the format's side.

        Returns:
            tokens_BL int32, or tokens_BLW int16 of characters; valid_BL, bool; segments_BL, int32,
            where the format has segments.
        """
        shape = (len(rows), self.L, self.W) if self.W else (len(rows), self.L)
        tokens = np.zeros(shape, np.int16 if self.W else np.int32)  # characters are below 300
        valid_BL, segments_BL = (np.zeros(shape[:2], x) for x in (bool, np.int32))
        for i, row in enumerate(rows):
            at = self.place(row)
            tokens[i, at], valid_BL[i, at], segments_BL[i, at] = row.ids, True, row.segments
        arrays = {"tokens_BLW" if self.W else "tokens_BL": tokens, "valid_BL": valid_BL}
        # Texts beyond the backbone's segments share its last.
        return arrays | ({"segments_BL": np.minimum(segments_BL, self.S - 1)} if self.S else {})

    def place(self, row: Row) -> slice:
        """Returns the positions of L that a row takes, beside its padding."""
        n = len(row.ids)
        return slice(self.L - n, self.L) if self.format.padding == "left" else slice(0, n)


def truncate_lengths(
    lengths: Sequence[int], room: int, keep: Sequence[int] = ()
) -> tuple[list[int], int]:
    """Shortens lengths to fit a room: the longest loses a token at a time, as in BERT's code.

    Returns:
        (lengths, number of tokens lost)
    """
    left = list(lengths)
    over = max(sum(left) - max(room, 0), 0)
    for group in ([i for i in range(len(left)) if i not in keep], list(keep)):
        while group and sum(left) > room and max(left[i] for i in group) > 0:
            longest = max(group, key=lambda i: left[i])
            others = [left[i] for i in group if i != longest]
            # Many tokens at once, which one at a time would take from this text alone.
            lead = left[longest] - max(others, default=0)
            left[longest] -= max(1, min(sum(left) - max(room, 0), lead))
    return left, over


def check_padding(arrays: Mapping[str, np.ndarray], side: str) -> None:
    """Raises a UserError if a row has padding anywhere but on this side."""
    # Kernels take a row's number of valid positions for their places.
    for name in ("valid_BL", "valid_BOL"):
        if name in arrays:
            valid = arrays[name] if side == "right" else arrays[name][..., ::-1]
            inner = (valid[..., 1:] & ~valid[..., :-1]).reshape(len(valid), -1).any(1)
            if inner.any():
                raise UserError(
                    f"row {int(inner.argmax())} of the task's {name} has padding elsewhere than "
                    f"on the {side}, where its text format has it"
                )
