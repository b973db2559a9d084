"""A question and a window of its context as a row, and where in it the context stands."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from finetune.inputs.rows import Row, RowBuilder
from finetune.inputs.sliding_windows import owners, windows
from pretrain.runtime.errors import UserError


class Context(NamedTuple):
    """A text: its tokens as the backbone reads them, and where these stand among its characters."""

    tokens: np.ndarray
    starts: np.ndarray
    ends: np.ndarray


class Piece(NamedTuple):
    """A question with one window of its context, as a row.

    Attributes:
        example: which question.
        window: tokens of the context.
        first: where the first of them stands among the row's L positions.
        own: [L of the window], bool: of all windows this shows the token best.
    """

    example: int
    window: range
    row: Row
    first: int
    own: np.ndarray


class Questions:
    """Turns examples {"question", "context", "where"} into rows, the same ones each time.

    Attributes:
        stride: tokens from one window to the next.
        max_query: tokens of a question; more are cut off.
        notes: what the user should know.
    """

    def __init__(self, inputs: RowBuilder, stride: int, max_query: int):
        self.inputs, self.stride, self.max_query = inputs, stride, max_query
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        """Rows are made again for each evaluation: what is said of them is kept once."""
        if text not in self.notes:
            self.notes.append(text)

    def contexts(self, examples: Sequence[dict]) -> dict[str, Context]:
        """Each text once."""
        texts = list(dict.fromkeys(x["context"] for x in examples))
        offsets = self.inputs.tokenizer.offsets(texts)
        found = zip(texts, self.inputs.tokens(texts), offsets, strict=True)
        return {text: Context(tokens, own.starts, own.ends) for text, tokens, own in found}

    def pieces(self, examples: Sequence[dict], contexts: dict[str, Context]) -> Iterator[Piece]:
        """All windows of all examples, in their order.

        Raises:
            UserError: a question leaves no room for its context.
        """
        questions = self.inputs.tokens([x["question"] for x in examples])
        if cut := sum(len(question) > self.max_query for question in questions):
            self.note(f"{cut:,} questions were longer than {self.max_query} tokens")
        marks = len(self.inputs.row([questions[0][:0]] * 2).ids)
        for number, (example, question) in enumerate(zip(examples, questions, strict=True)):
            question, tokens = question[: self.max_query], contexts[example["context"]].tokens
            room = self.inputs.L - marks - len(question)
            if room < 1:
                raise UserError(
                    f"{example['where']}: a row of batches.L={self.inputs.L} has no room for the "
                    f"context beside {len(question)} tokens of the question: raise batches.L"
                )
            found = windows(len(tokens), room, self.stride)
            whose = owners(found, len(tokens))
            for i, window in enumerate(found):
                row, first = self._row(question, tokens[window.start : window.stop])
                yield Piece(number, window, row, first, whose[window.start : window.stop] == i)

    def _row(self, question: np.ndarray, window: np.ndarray) -> tuple[Row, int]:
        """Frames question and window in the format's order."""
        place = 0 if self.inputs.format.context_first else 1
        row = self.inputs.row([window, question] if place == 0 else [question, window])
        return row, self.inputs.place(row).start + max(row.starts[place], 0)

    def null(self, row: Row) -> int:
        """The position that stands for no answer: [CLS], or what takes its part."""
        place = self.inputs.place(row)
        return place.stop - 1 if self.inputs.format.pool == "last" else place.start
