"""Puts texts into rows of tokens, as a system's text format frames them.

Formats of the published systems, with the rows they make, are `pretrain.inference.text_formats`.
More texts than two go on in the same manner.
"""

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
        ids: [n], of tokens; of words where these are spelled.
        segments: [n].
        starts: where each text's first token stands in the row, or -1 if it was cut away.
        cut: how many tokens were left out.
    """

    ids: np.ndarray
    segments: np.ndarray
    starts: list[int]
    cut: int


class RowBuilder:
    """Turns texts into arrays for a backbone.

    Attributes:
        format: how the system frames texts.
        new: rows that the embedding needs beyond the pretrained ones, for the format's new tokens.
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
            V: rows of the embedding, the last of which are the new tokens'; 0: the tokenizer has
                one fewer for each of these.
            S: segments that the backbone tells apart; None: as many as the format.

        Raises:
            UserError: the tokenizer lacks a mark.
        """
        self.format, self.tokenizer, self.L, self.W = format, tokenizer, L, W
        self.S = format.segments if S is None else min(S, format.segments)
        self.new = len(format.new_tokens)
        first = V - self.new if V else tokenizer.V
        learned = {name: first + i for i, name in enumerate(format.new_tokens)}
        known = [name for name in format.marks if name not in learned]
        self._ids = learned | dict(zip(known, mark_ids(known, tokenizer.special), strict=True))

    def tokens(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Encodes each text: ids [n], or characters [n, W] where words are spelled."""
        if not self.W:
            return [np.asarray(ids, np.int32) for ids in self.tokenizer.encode(list(texts))]
        words = self.tokenizer.words(texts)  # type: ignore[attr-defined]
        return [spell_words(each, self.W) for each in words]

    def marks(self, names: Sequence[str]) -> np.ndarray:
        """Returns the marks of these names, encoded as `tokens` encodes texts."""
        ids = [self._ids[name] for name in names]
        if not self.W:
            return np.array(ids, np.int32)
        return spell_words([self.tokenizer.pieces[i] for i in ids], self.W)

    def row(self, tokens: Sequence[np.ndarray], keep: Sequence[int] = ()) -> Row:
        """Frames texts' tokens as one row; where they are too many, the longest text loses its end.

        Args:
            keep: numbers of the texts that must not lose any, if others can.
        """
        form, last = self.format, len(tokens) - 1
        extra = len(form.before) + last * len(form.between) + len(form.after) + len(form.last)
        kept, cut = truncate_lengths([len(x) for x in tokens], self.L - extra, keep)
        parts, segments, starts = [self.marks(form.before)], [0] * len(form.before), []
        for number, (text, n) in enumerate(zip(tokens, kept, strict=True)):
            starts.append(len(segments) if n else -1)
            marks = self.marks(form.between if number < last else form.after)
            parts += [text[:n], marks]
            segments += [number] * (n + len(marks))
        parts.append(self.marks(form.last))
        segments += [form.last_segment] * len(form.last)
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
        made = {"tokens_BLW" if self.W else "tokens_BL": tokens, "valid_BL": valid_BL}
        return made | ({"segments_BL": np.minimum(segments_BL, self.S - 1)} if self.S else {})

    def place(self, row: Row) -> slice:
        """Returns the positions, of L, at which a row stands."""
        n = len(row.ids)
        return slice(self.L - n, self.L) if self.format.padding == "left" else slice(0, n)


def truncate_lengths(
    lengths: Sequence[int], room: int, keep: Sequence[int] = ()
) -> tuple[list[int], int]:
    """Fits lengths into a room: the longest gives up a token at a time, as in BERT's code.

    Returns:
        (lengths, how many tokens were given up)
    """
    left = list(lengths)
    over = max(sum(left) - max(room, 0), 0)
    for group in ([i for i in range(len(left)) if i not in keep], list(keep)):
        while group and sum(left) > room and max(left[i] for i in group) > 0:
            longest = max(group, key=lambda i: left[i])
            others = [left[i] for i in group if i != longest]
            spare = left[longest] - max(others, default=0)
            left[longest] -= max(1, min(sum(left) - max(room, 0), spare))
    return left, over


def check_padding(arrays: Mapping[str, np.ndarray], side: str) -> None:
    """Raises a UserError if a row has padding anywhere but on this side.

    A backbone may take the number of valid positions for their places.
    """
    for name in ("valid_BL", "valid_BOL"):
        if name in arrays:
            valid = arrays[name] if side == "right" else arrays[name][..., ::-1]
            inner = (valid[..., 1:] & ~valid[..., :-1]).reshape(len(valid), -1).any(1)
            if inner.any():
                raise UserError(
                    f"row {int(inner.argmax())} of the task's {name} has padding elsewhere than "
                    f"on the {side}, where its text format has it"
                )
