"""Spells words as character ids: the bytes of their UTF-8, framed and padded."""

import functools
import weakref
from collections.abc import Sequence

import numpy as np

from pretrain.data.tokenizers import Tokenizer
from pretrain.runtime.errors import UserError

BOS, EOS, BOW, EOW, PAD = range(256, 261)  # after the 256 bytes
MARKS = {"<S>": BOS, "</S>": EOS}


def spell_words(words: Sequence[str], W: int = 50) -> np.ndarray:
    """Spells each word: BOW, at most W - 2 bytes, EOW, PAD up to W.

    Follows bilm-tf's UnicodeCharsVocabulary: "<S>" and "</S>" are one id each between BOW and EOW.

    Args:
        words: n words.
        W: characters of a word, with its frame.

    Returns:
        uint16 [n, W].

    Raises:
        UserError: W has no room for a character.
    """
    check_width(W)
    # A long word is cut between bytes, not characters, as there.
    spelled = [word.encode("utf-8", "ignore")[: W - 2] for word in words]
    n, sizes_n1 = len(spelled), np.array([len(word) for word in spelled], int)[:, None]
    ids_nW = np.full((n, W), PAD, np.uint16)
    ids_nW[:, 0] = BOW
    inside_nW = np.arange(W) < sizes_n1 + 1
    inside_nW[:, 0] = False
    # Nothing is added to the ids, as in bilm-tf's training; its inference adds 1.
    ids_nW[inside_nW] = np.frombuffer(b"".join(spelled), np.uint8)
    np.put_along_axis(ids_nW, sizes_n1 + 1, np.uint16(EOW), axis=1)
    for i, word in enumerate(words):
        if word in MARKS:
            ids_nW[i] = _spell_mark(MARKS[word], W)
    return ids_nW


def check_width(W: int) -> None:
    """Raises UserError unless a word of W characters has room for one."""
    if W < 3:
        raise UserError(f"characters={W}: a word is its frame of 2 and at least one character")


def _spell_mark(character: int, W: int) -> np.ndarray:
    return np.array([BOW, character, EOW] + [PAD] * (W - 3), np.uint16)


class Table:
    """The characters of all words of a tokenizer, computed on first use."""

    def __init__(self, tokenizer: Tokenizer, W: int):
        check_width(W)
        self.tokenizer, self.W = tokenizer, W

    @functools.cached_property
    def characters_VW(self) -> np.ndarray:  # noqa: N802
        """Spells every id: uint16 [V, W]; "bos" and "eos" are the marks, whatever their text."""
        ids_VW = spell_words(self.tokenizer.pieces, self.W)
        for name, character in (("bos", BOS), ("eos", EOS)):
            ids_VW[self.tokenizer.special[name]] = _spell_mark(character, self.W)
        return ids_VW


# Layouts of one corpus share a table, which may be large: a table keeps its tokenizer, so that
# no other can have its address meanwhile.
_TABLES: weakref.WeakValueDictionary[tuple[int, int], Table] = weakref.WeakValueDictionary()


def get_table(tokenizer: Tokenizer, W: int) -> Table:
    """Returns the table of a tokenizer; the same object on every call, while one is in use."""
    return _TABLES.setdefault((id(tokenizer), W), Table(tokenizer, W))
