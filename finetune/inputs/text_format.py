"""Texts as each system has learned, or was fine-tuned, to read them.

    BERT    [CLS] A [SEP] B [SEP]            segments 0 and 1
    XLNet   A <sep> B <sep> <cls>            segments 0, 1, and 2 of <cls>; padded on the left
    GPT     <start> A <delimiter> B <extract>    three tokens that pretraining did not have
    ELMo    <S> A </S> <S> B </S>            words as characters

More texts than two go on in the same manner.  Devlin et al. 2019, section 4; XLNet's
classifier_utils.py; Radford et al. 2018, section 3.3.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from pretrain.data.tokenizers import Tokenizer
from pretrain.data.tokenizers.character_ids import characters
from pretrain.objectives import special_id
from pretrain.runtime.errors import UserError


class Form(NamedTuple):
    """How a system puts texts into a row; names are of special tokens, or of NEW.

    Attributes:
        before, between, after: marks before all, behind each text but the last, behind the last.
        last: one more mark, which is a segment of its own.
        left: padding stands on the left.
        pool: where the state stands that speaks for the row, "first" or "last".
    """

    before: tuple[str, ...]
    between: tuple[str, ...]
    after: tuple[str, ...]
    last: tuple[str, ...] = ()
    left: bool = False
    pool: str = "first"


FORMS = {  # by the objective that a run was pretrained with
    "mlm": Form(("cls",), ("sep",), ("sep",)),
    "plm": Form((), ("sep",), ("sep",), ("cls",), left=True, pool="last"),
    "clm": Form(("start",), ("delimiter",), ("extract",), pool="last"),
    "bilm": Form(("bos",), ("eos", "bos"), ("eos",), pool="mean"),
}
NEW = ("start", "delimiter", "extract")


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


class Inputs:
    """Turns texts into arrays for a backbone.

    Attributes:
        form: of this system.
        new: how many tokens the vocabulary must have beyond the tokenizer's.
        L: positions of a row.
    """

    def __init__(self, system: str, tokenizer: Tokenizer, L: int, *, W: int = 0, V: int = 0):
        """
        Args:
            system: the objective of pretraining, of FORMS.
            W: characters of a word; 0: the backbone reads ids.
            V: rows of the pretrained embedding; the new tokens come behind them.

        Raises:
            UserError: the system is not known, or the tokenizer lacks a mark.
        """
        if system not in FORMS:
            raise UserError(f"system={system!r}: it is known how {', '.join(FORMS)} read a text")
        self.system, self.form, self.tokenizer, self.L, self.W = (
            system,
            FORMS[system],
            tokenizer,
            L,
            W,
        )
        self.new = len(NEW) if system == "clm" else 0
        own = {name: (V or tokenizer.V) + i for i, name in enumerate(NEW)}
        named = (*self.form.before, *self.form.between, *self.form.after, *self.form.last)
        self._ids = {
            name: own[name] if name in own else special_id(tokenizer.special, name)
            for name in named
        }

    def tokens(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Ids of each text; where words are spelled, characters [n, W] of each."""
        if not self.W:
            return [np.asarray(ids, np.int32) for ids in self.tokenizer.encode(list(texts))]
        words = self.tokenizer.words(texts)  # type: ignore[attr-defined]
        return [characters(each, self.W) for each in words]

    def marks(self, names: Sequence[str]) -> np.ndarray:
        """Of these names, as `tokens` has texts."""
        ids = [self._ids[name] for name in names]
        if not self.W:
            return np.array(ids, np.int32)
        return characters([self.tokenizer.pieces[i] for i in ids], self.W)

    def row(self, tokens: Sequence[np.ndarray], keep: Sequence[int] = ()) -> Row:
        """Texts' tokens in one row; where they are too many, the longest text loses its end.

        Args:
            keep: numbers of the texts that must not lose any, if others can.
        """
        form, last = self.form, len(tokens) - 1
        extra = len(form.before) + last * len(form.between) + len(form.after) + len(form.last)
        kept, cut = shortened([len(x) for x in tokens], self.L - extra, keep)
        parts, segments, starts = [self.marks(form.before)], [0] * len(form.before), []
        for number, (text, n) in enumerate(zip(tokens, kept, strict=True)):
            starts.append(len(segments) if n else -1)
            marks = self.marks(form.between if number < last else form.after)
            parts += [text[:n], marks]
            segments += [number] * (n + len(marks))
        parts.append(self.marks(form.last))
        segments += [2] * len(form.last)
        return Row(np.concatenate(parts), np.array(segments, np.int32), starts, cut)

    def arrays(self, rows: Sequence[Row], S: int = 0) -> dict[str, np.ndarray]:
        """Rows padded to L: tokens_BL or tokens_BLW, valid_BL, and segments_BL where there are S.

        Left or right, as the system has learned it.
        """
        shape = (len(rows), self.L, self.W) if self.W else (len(rows), self.L)
        tokens = np.zeros(shape, np.int16 if self.W else np.int32)  # characters are below 300
        valid_BL, segments_BL = (np.zeros(shape[:2], x) for x in (bool, np.int32))
        for i, row in enumerate(rows):
            at = self.place(row)
            tokens[i, at], valid_BL[i, at], segments_BL[i, at] = row.ids, True, row.segments
        made = {"tokens_BLW" if self.W else "tokens_BL": tokens, "valid_BL": valid_BL}
        return made | ({"segments_BL": np.minimum(segments_BL, S - 1)} if S else {})

    def place(self, row: Row) -> slice:
        """Where in the L positions a row stands."""
        n = len(row.ids)
        return slice(self.L - n, self.L) if self.form.left else slice(0, n)


def shortened(lengths: Sequence[int], room: int, keep: Sequence[int] = ()) -> tuple[list[int], int]:
    """Lengths that fit: the longest gives up a token at a time (BERT's _truncate_seq_pair).

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
