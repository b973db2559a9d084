"""Frames a question and a window of its context as a row."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from finetune.inputs.rows import Row, RowBuilder
from finetune.inputs.sliding_windows import assign_tokens, split_windows
from pretrain.runtime.errors import UserError


class Context(NamedTuple):
    """Tokens of a text, and the characters [start, end) of each."""

    tokens: np.ndarray
    starts: np.ndarray
    ends: np.ndarray


class QuestionWindow(NamedTuple):
    """A question with one window of its context, as a row.

    Attributes:
        example: the number of the question.
        window: tokens of the context.
        row: question and window.
        first: position of the window's first token among the row's L.
        is_best: [len(window)], bool: no other window shows the token with more context.
    """

    example: int
    window: range
    row: Row
    first: int
    is_best: np.ndarray


class Questions:
    """Turns examples {"question", "context", "where"} into rows.

    Attributes:
        stride: tokens from one window to the next.
        max_query: tokens of a question; more are cut off.
        notes: lines for the user.
    """

    def __init__(self, inputs: RowBuilder, stride: int, max_query: int):
        inputs.format.require_forward("answers to questions")
        self.inputs, self.stride, self.max_query = inputs, stride, max_query
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        # Predictions are read by making the rows again: a note may be there.
        if text not in self.notes:
            self.notes.append(text)

    def encode_contexts(self, examples: Sequence[dict]) -> dict[str, Context]:
        # Once, as many questions share one.
        texts = list(dict.fromkeys(x["context"] for x in examples))
        offsets = self.inputs.tokenizer.offsets(texts)
        encoded = zip(texts, self.inputs.tokens(texts), offsets, strict=True)
        return {text: Context(tokens, at.starts, at.ends) for text, tokens, at in encoded}

    def iter_windows(
        self, examples: Sequence[dict], contexts: dict[str, Context]
    ) -> Iterator[QuestionWindow]:
        """Yields all windows of all examples, in their order.

        Raises:
            UserError: a question leaves no room for its context.
        """
        questions = self.inputs.tokens([x["question"] for x in examples])
        if cut := sum(len(question) > self.max_query for question in questions):
            self.note(f"{cut:,} questions were longer than {self.max_query} tokens")
        # Two texts without a token leave the marks alone.
        marks = len(self.inputs.row([questions[0][:0]] * 2).ids)
        for number, (example, question) in enumerate(zip(examples, questions, strict=True)):
            question, tokens = question[: self.max_query], contexts[example["context"]].tokens
            room = self.inputs.L - marks - len(question)
            if room < 1:
                raise UserError(
                    f"{example['where']}: a row of batches.L={self.inputs.L} has no room for the "
                    f"context beside {len(question)} tokens of the question: raise batches.L"
                )
            windows = split_windows(len(tokens), room, self.stride)
            best_N = assign_tokens(windows, len(tokens))
            for i, window in enumerate(windows):
                at = slice(window.start, window.stop)
                row, first = self._frame(question, tokens[at])
                yield QuestionWindow(number, window, row, first, best_N[at] == i)

    def _frame(self, question: np.ndarray, window: np.ndarray) -> tuple[Row, int]:
        place = 0 if self.inputs.format.context_first else 1
        row = self.inputs.row([window, question] if place == 0 else [question, window])
        # A context without a token has no start.
        return row, self.inputs.place(row).start + max(row.starts[place], 0)

    def find_null(self, row: Row) -> int:
        """Returns the position that stands for no answer: [CLS], or the format's counterpart."""
        place = self.inputs.place(row)
        return place.stop - 1 if self.inputs.format.pool == "last" else place.start
