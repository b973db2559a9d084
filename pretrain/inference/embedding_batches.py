"""Cuts texts into batches of rows of about one length, each row padded to one of few lengths."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from pretrain.inference.embedding_inputs import build_reader
from pretrain.inference.length_buckets import list_lengths
from pretrain.inference.run import Run
from pretrain.inference.text_format import format_name, load_format
from pretrain.runtime.errors import UserError

PART = 8  # so many times fewer rows are in a batch where fewer are left, or lengths differ much


class Row(NamedTuple):
    """A text ready to be read: its tokens between the marks of its system.

    Attributes:
        tokens: whose vectors are wanted, the marks where these are, too.
    """

    number: int
    tokens: list[str]
    ids: np.ndarray  # [L], with the marks: of the tokenizer, or of the block's own words
    words: int
    block: int


class Block(NamedTuple):
    """Rows of about one length together; what their ids mean if not the tokenizer's pieces."""

    batches: list[list[Row]]
    chars_VW: np.ndarray | None  # the spellings of its distinct words


class RowBatcher:
    """Frames texts as their system does, and puts those of about one length together.

    Attributes:
        tokens: that one device reads at once, padding included.
        longest: most tokens of a row, with the marks.
        lengths: that rows are padded to, four for every doubling from 8 tokens to the longest.
        cuts, empty: how many texts were cut, and how many had no tokens.
    """

    def __init__(self, run: Run, shards: int, *, tokens: int, cut: bool, marks: bool = False):
        """
        Args:
            shards: that the rows of a batch divide over.
            cut: texts longer than a row lose their end.
            marks: those around a text count as its tokens.
        """
        self.shards, self.tokens, self.cut = shards, tokens, cut
        self.read = build_reader(run)
        text_format = load_format(format_name(run.config))
        text_format.require_forward("vectors of words")
        before, after, segments = text_format.frame(run.tokenizer.special)
        self.before, self.after = self.read.marks(before), self.read.marks(after)
        self.after_segments = segments if any(segments) else []
        # Names of what stands around the tokens of a row.
        self.shown_marks = [
            [run.tokenizer.pieces[i] for i in ids] if marks else [] for ids in (before, after)
        ]
        # A backbone without a table of positions reads rows of any length.
        self.longest = min(getattr(run.backbone, "L", tokens), tokens)
        self.lengths = list_lengths(self.longest)
        self.cuts, self.empty = 0, 0

    def make_block(self, first: int, texts: list[str]) -> Block:
        """Cuts texts into batches of rows of about one length, the longest first.

        Args:
            first: number of the first text.

        Raises:
            UserError: a text is too long and not to be cut; it is named by its number + 1.
        """
        tokens, ids, chars_VW = self.read(texts)
        rows = [
            self._make_row(first, first + i, *parts)
            for i, parts in enumerate(zip(texts, tokens, ids, strict=True))
        ]
        rows.sort(key=lambda row: -len(row.ids))
        batches = []
        while rows:
            # Two sizes for each length, so that few programs are compiled.
            full, part = self.batch_sizes(L := self.padded_length(rows))
            # A full batch only of rows at least half as long as its first: else much is padding.
            alike = len(rows) >= full and 2 * len(rows[full - 1].ids) >= L
            rows, batch = rows[(n := full if alike else part) :], rows[:n]
            batches.append(batch)
        return Block(batches, chars_VW)

    def _make_row(
        self, block: int, number: int, text: str, tokens: list[str], ids: np.ndarray
    ) -> Row:
        room = self.longest - len(self.before) - len(self.after)
        if len(tokens) > room:
            if not self.cut:
                more = "" if self.longest < self.tokens else "raise --tokens, "
                raise UserError(
                    f"line {number + 1} has {len(tokens)} tokens, of which {room} can be read at "
                    f"once: {more}make it two lines, or take its beginning with --cut"
                )
            self.cuts += 1
        framed = np.concatenate([self.before, ids[:room], self.after])
        self.empty += not tokens
        shown = [*self.shown_marks[0], *tokens[:room], *self.shown_marks[1]]
        return Row(number, shown, framed, len(text.split()), block)

    def padded_length(self, rows: Sequence[Row]) -> int:
        """Returns the length that these rows, the longest first, are padded to."""
        return next(L for L in self.lengths if len(rows[0].ids) <= L)

    def batch_sizes(self, L: int) -> tuple[int, int]:
        """Returns the rows of a full batch of this length, and of one of what is left."""
        full = max(self.tokens // L, 1)
        return full * self.shards, -(-full // PART) * self.shards

    def make_arrays(self, rows: list[Row], words_VD: Any = None) -> dict[str, np.ndarray]:
        """Fills the arrays that the backbone reads; the ids of padding do not matter.

        Args:
            rows: of a batch of `make_block`.
            words_VD: vectors of the words that ids stand for; None: ids are read themselves.

        Returns:
            `valid_BL`, and `segments_BL` where the marks have others; `ids_BL` or `x_BLD`.
        """
        L = self.padded_length(rows)
        B = next(B for B in reversed(self.batch_sizes(L)) if len(rows) <= B)
        ids_BL = np.zeros((B, L), np.int32)
        batch = {"valid_BL": np.zeros((B, L), bool)}
        if self.after_segments:
            batch["segments_BL"] = np.zeros((B, L), np.int32)
        for i, row in enumerate(rows):
            n = len(row.ids)
            ids_BL[i, :n] = row.ids
            batch["valid_BL"][i, :n] = True
            if self.after_segments:
                batch["segments_BL"][i, n - len(self.after) : n] = self.after_segments
        return batch | ({"ids_BL": ids_BL} if words_VD is None else {"x_BLD": words_VD[ids_BL]})

    def slice_text(self, row: Row) -> slice:
        """Returns the positions of a row's tokens, which stand between marks that are not shown."""
        start = len(self.before) - len(self.shown_marks[0])
        return slice(start, start + len(row.tokens))
