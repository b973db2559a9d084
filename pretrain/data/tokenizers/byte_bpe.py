"""Implements GPT-2's tokenizer: byte-level BPE, which restores any text unchanged.

Follows GPT-2's encoder.py (Radford et al., 2019).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import tokenizers as library
from tokenizers import decoders, models, pre_tokenizers

from pretrain.data.tokenizers.bpe_files import MergeEncoder
from pretrain.data.tokenizers.training import Merges, learn_pieces

EOD = "<|endoftext|>"
BLANKS = tuple(chr(0x100 + byte) for byte in b"\t\n\v\f\r ")  # the letters written for them
BYTES = sorted(pre_tokenizers.ByteLevel.alphabet())


@dataclass
class Tokenizer(MergeEncoder):
    """Bytes, merged within words; a word includes the blank before it.

    Attributes:
        word_start_V: the piece begins with a blank, or ends the document.
    """

    name = "byte_bpe"
    published = ("encoder.json", "vocab.bpe")
    marks: ClassVar[Mapping[str, str]] = {"eod": EOD}  # special pieces, by their names
    needed = (EOD, *BYTES)  # with all bytes, no text is unknown

    def __post_init__(self):
        ids = {piece: i for i, piece in enumerate(self.pieces)}
        self._library = build_library(models.BPE(ids, self.merges))
        self._library.decoder = decoders.ByteLevel()
        self.V = len(self.pieces)
        starts = (*BLANKS, *self.marks.values())
        self.word_start_V = np.array([piece.startswith(starts) for piece in self.pieces])
        self.special = {name: ids[piece] for name, piece in self.marks.items()}

    @staticmethod
    def settings(V: int = 50_257, model: str = "", sample: int = 10_000_000) -> dict[str, Any]:
        """Checks the fields, see `MergeEncoder.settings`; V counts bytes, merges and the end."""
        return Tokenizer._settings(V, model, sample)

    @staticmethod
    def learn_pieces(texts: list[str], V: int) -> tuple[list[str], Merges]:
        return learn_pieces(texts, build_library(models.BPE()), V, BYTES, last=[EOD])


def build_library(model: models.BPE) -> library.Tokenizer:
    tokenizer = library.Tokenizer(model)
    # A blank before the first word would be lost in decoding: GPT-2 adds none.
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return tokenizer
