"""Implements GPT-1's tokenizer: BPE of lower-case words, whose last piece is marked.

Follows GPT-1's text_utils.py (Radford et al., 2018), with rules of its own in the place of the
two libraries that cleaned its text (ftfy) and cut it into words (spaCy).
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import tokenizers as library
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers

from pretrain.data.tokenizers.bpe_files import MergeEncoder
from pretrain.data.tokenizers.training import Merges, learn_pieces, rank_characters

UNK = "<unk>"
LAST = "</w>"  # after the piece that ends its word
EOD = "\n" + LAST

# In the place of ftfy: marks of typography become plain ones.
PLAIN = {"[—–―]": "-", "…": "...", "[´‘’‚‛]": "'", "[“”„‟]": '"'}
CLEANING = normalizers.Sequence(
    [normalizers.NFC()]
    + [normalizers.Replace(Regex(fancy), plain) for fancy, plain in PLAIN.items()]
    + [normalizers.BertNormalizer(handle_chinese_chars=False, strip_accents=False)]
)

# In the place of spaCy: what is a word; the first rule that matches wins.
SHORT = "mr|mrs|ms|dr|prof|rev|gen|adm|sen|rep|gov|st|mt|messrs|jr|inc|ltd|co|corp|bros|vs"
LETTER = r"[\p{L}\p{M}\p{N}]"
ENDING = rf"(?:n't|'(?:s|m|d|re|ve|ll))(?!{LETTER})"
INNER = rf"(?<={LETTER})[.'](?={LETTER})|(?<=\p{{N}}):(?=\p{{N}})"  # "o'clock", "3.14", "7:30"
WORDS = [
    rf"(?<!{LETTER})(?:{SHORT})\.",
    r"(?<!\p{L})\p{L}(?:\.\p{L})*\.(?![\p{L}.])",  # "j.", "u.s."
    rf"(?<!{LETTER})(?:can(?=not\b)|gon(?=na\b)|got(?=ta\b))",  # "can" "not"
    ENDING,  # "do" "n't", "she" "'s"
    rf"(?:(?!{ENDING})(?:{LETTER}|{INNER}))+",
    r"\.{2,}|-+|~+|/+|''|\S",
]


@dataclass
class Tokenizer(MergeEncoder):
    """Characters, merged within words; unknown characters are <unk>.

    Attributes:
        word_start_V: the piece ends its word.
    """

    name = "bpe"
    published = ("encoder_bpe_40000.json", "vocab_40000.bpe")
    needed = (UNK, EOD)
    ending = LAST

    def __post_init__(self):
        ids = {piece: i for i, piece in enumerate(self.pieces)}
        model = models.BPE(ids, self.merges, unk_token=UNK, end_of_word_suffix=LAST)
        self._library = _build_library(model)
        self._library.normalizer = CLEANING
        self._library.decoder = decoders.BPEDecoder(suffix=LAST)
        self.V = len(self.pieces)
        # Only the piece before could say whether one begins a word; but there are as many ends as
        # beginnings.
        self.word_start_V = np.array([p.endswith(LAST) or p == UNK for p in self.pieces])
        # The published vocabulary has no end of a document: its line end is used for that, as line
        # ends within a text are blanks here.
        self.special = {"unk": ids[UNK], "eod": ids[EOD]}

    @staticmethod
    def settings(V: int = 40_478, model: str = "", sample: int = 10_000_000) -> dict[str, Any]:
        """Checks the fields, see `MergeEncoder.settings`."""
        return Tokenizer._settings(V, model, sample)

    @staticmethod
    def learn_pieces(texts: list[str], V: int) -> tuple[list[str], Merges]:
        texts = [CLEANING.normalize_str(text) for text in texts]
        letters, mark = rank_characters(texts), {"end_of_word_suffix": LAST}
        return learn_pieces(texts, _build_library(models.BPE()), V, letters, [UNK], [EOD], **mark)


def _build_library(model: models.BPE) -> library.Tokenizer:
    tokenizer = library.Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("|".join(WORDS)), "removed", invert=True)
    return tokenizer
