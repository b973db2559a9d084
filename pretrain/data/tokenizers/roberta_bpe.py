"""Implements RoBERTa's tokenizer: GPT-2's bytes and merges, with marks as BERT has them.

Liu et al. 2019 (arXiv 1907.11692), section 4.4; the marks are fairseq's.
"""

from dataclasses import dataclass
from typing import Any

from tokenizers import models

from pretrain.data.tokenizers import byte_bpe
from pretrain.data.tokenizers.bpe_files import SAVED
from pretrain.data.tokenizers.training import Merges, learn_pieces

FIRST = {"cls": "<s>", "pad": "<pad>", "sep": "</s>", "unk": "<unk>"}  # in the order of their ids
LAST = {"mask": "<mask>"}
SPECIAL = FIRST | LAST


@dataclass
class Tokenizer(byte_bpe.Tokenizer):
    """Bytes, merged within words; a word includes the blank before it.

    Attributes:
        word_start_V: the piece begins with a blank, or is a mark.
    """

    name = "roberta_bpe"
    published = SAVED
    marks = SPECIAL | {"eod": FIRST["sep"]}  # it has no other end
    needed = (*SPECIAL.values(), *byte_bpe.BYTES)

    @staticmethod
    def settings(V: int = 50_265, model: str = "", sample: int = 10_000_000) -> dict[str, Any]:
        """Checks the fields, see `MergeEncoder.settings`; V counts bytes, merges and marks."""
        return Tokenizer._settings(V, model, sample)

    @staticmethod
    def learn_pieces(texts: list[str], V: int) -> tuple[list[str], Merges]:
        library = byte_bpe.build_library(models.BPE())
        first, last = list(FIRST.values()), list(LAST.values())
        return learn_pieces(texts, library, V, byte_bpe.BYTES, first, last)
