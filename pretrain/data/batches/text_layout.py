"""The text that a layout is bound to: its documents, its epochs, its fingerprint."""

import copy
import dataclasses
import functools
import hashlib
import threading
from typing import Any, Self

import numpy as np

from pretrain.data.corpus.prepared_corpus import Corpus
from pretrain.data.tokenizers.special_tokens import require_special
from pretrain.runtime.errors import UserError


@dataclasses.dataclass(kw_only=True, eq=False)
class TextLayout:
    """A layout of a prepared corpus; a subclass adds its fields and says what a row is.

    A subclass checks its fields in `__post_init__` and defines `shapes`, `batch`, `open_text`
    and `open_epoch`.

    Attributes:
        B: rows of a batch, over all hosts.
        L: tokens of a row.
        seed: of every order and draw.
    """

    B: int
    L: int
    seed: int = 0

    def bind(self, corpus: Corpus, documents: np.ndarray, *, shuffle: bool) -> Self:
        """Returns this layout of the documents with these numbers, ready to be read.

        Raises:
            UserError: the fields do not fit the text.
        """
        # One recipe's layout is bound to the training text and to each held-out one.
        layout = copy.copy(self)
        layout._set_text(corpus, documents, shuffle)
        return layout

    def _set_text(self, corpus: Corpus, documents: np.ndarray, shuffle: bool) -> None:
        require_special(corpus.tokenizer.special, self.required_special, repr(self.name))
        self.corpus, self.documents, self.shuffle = corpus, documents, shuffle
        self.size = int((corpus.documents[documents + 1] - corpus.documents[documents]).sum())
        self._lock = threading.Lock()
        # Two: reading ahead enters the next epoch while this one is still read.
        self._cached_epoch = functools.lru_cache(maxsize=2)(self.open_epoch)
        self.open_text()

    def open_text(self) -> None:
        """Checks the text and sets `steps_per_epoch`.

        Raises:
            UserError: the text is too short, or lacks what the layout needs.
        """
        raise NotImplementedError

    def open_epoch(self, number: int) -> Any:
        """Draws what the batches of an epoch are read from."""
        raise NotImplementedError

    def epoch(self, number: int) -> Any:
        """Returns `open_epoch(number)`; the newest two are kept."""
        with self._lock:  # threads that begin an epoch together draw it once
            return self._cached_epoch(number)

    def set_epoch(self, count: int, rows: int) -> None:
        """Sets the length of an epoch of `count` windows, `rows` of which a batch reads."""
        # With `shuffle`, windows that do not fill a batch wait for the next epoch's order.
        self.steps_per_epoch = count // rows if self.shuffle else -(-count // rows)

    def count_windows(self, stride: int, overlap: int = 0) -> int:
        """Counts windows that advance by `stride`, which read the text to its end or, with
        `shuffle`, fit in it; the first reads `overlap` tokens more."""
        if self.shuffle:
            return self.size // stride
        return 1 + -(-max(0, self.size - stride - overlap) // stride) if self.size else 0

    def require_windows(self, count: int, size: int, *, least: int, field: str) -> None:
        """Raises UserError unless the text has `least` windows, of `size` tokens each.

        Args:
            field: the one that the user may lower, beside B.
        """
        if count < least:
            raise UserError(
                f"{self.split} split has {count} windows of {size} tokens but batch has {self.B} "
                f"rows: use a smaller B or {field}, or more text in this split"
            )

    @property
    def required_special(self) -> tuple[str, ...]:
        """Returns the names of the special tokens that the rows need."""
        return ()

    @property
    def name(self) -> str:
        return type(self).__module__.rpartition(".")[2]

    @property
    def split(self) -> str:
        return "training" if self.shuffle else "held-out"

    def fingerprint(self) -> dict[str, Any]:
        """Returns what a position depends on: the text, its documents and every field."""
        # In one type and contiguous, equal numbers have equal hashes.
        documents = np.ascontiguousarray(self.documents, np.int64)
        return dict(
            layout=self.name,
            corpus=self.corpus.fingerprint,
            documents=hashlib.sha256(documents.data).hexdigest(),
            shuffle=self.shuffle,
            **{field.name: getattr(self, field.name) for field in dataclasses.fields(self)},
        )
