"""Implements XLNet's tokenizer: a SentencePiece unigram, learned or published.

Follows XLNet's spm_train command, prepro_utils.py and data_utils.py (Yang et al., 2019).
"""

import hashlib
import io
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece

from pretrain.data.corpus import text_files as text_lib
from pretrain.data.tokenizers import TRAITS, Offsets, fill_defaults, saved_files
from pretrain.data.tokenizers.normalization import clean_text, clean_with_origins
from pretrain.data.tokenizers.offsets import make_offsets
from pretrain.data.tokenizers.training import check_size, count_threads
from pretrain.data.tokenizers.unigram_words import find_new_words
from pretrain.formats import protobuf
from pretrain.runtime.errors import UserError

MODEL = "spiece.model"
SPECIAL = {name: f"<{name}>" for name in ("unk", "cls", "sep", "pad", "mask", "eod", "eop")}
PUNCTUATION = frozenset('!"#$%&"()*+,-./:;?@[\\]^_`{|}~')
LONGEST = 1000  # characters of a sentence to learn from: at most 4 bytes each, of 4192 allowed

TRAINING: dict[str, Any] = {
    "model_type": "unigram",
    "character_coverage": 0.99995,
    "control_symbols": ["<cls>", "<sep>", "<pad>", "<mask>", "<eod>"],  # ids 3 to 7
    "user_defined_symbols": ["<eop>", ".", "(", ")", '"', "-", "–", "£", "€"],
    "shuffle_input_sentence": True,
    "num_threads": 16,  # fixed on any machine, as the sums of its statistics follow it
    "minloglevel": 2,
}


@dataclass
class Tokenizer:
    """A SentencePiece model behind XLNet's cleaning of text.

    Attributes:
        model: the serialised SentencePiece model.
        lower, keep_accents: see `normalization.clean_text`.
        scores: the logarithms of the pieces' probabilities, by id.
    """

    model: bytes
    lower: bool = False
    keep_accents: bool = False
    V: int = field(init=False)

    def __post_init__(self):
        self._library = sentencepiece.SentencePieceProcessor(model_proto=self.model)
        self.V = self._library.piece_size()
        self.pieces = [self._library.id_to_piece(i) for i in range(self.V)]
        self.scores = [self._library.get_score(i) for i in range(self.V)]
        self.word_start_V = np.array([starts_word(piece) for piece in self.pieces])
        ids = {piece: i for i, piece in enumerate(self.pieces)}
        self.special = {k: ids[piece] for k, piece in SPECIAL.items() if piece in ids}
        # Pieces as "1990,": XLNet's prepro_utils.py parts the comma from the number.
        self._replaced = {
            i: self._without_comma(piece)
            for i, piece in enumerate(self.pieces)
            if re.search(r"\d,$", piece)
        }
        self._is_replaced_V = np.isin(np.arange(self.V), list(self._replaced))

    @staticmethod
    def settings(
        V: int = 32_000,
        model: str = "",
        lower: bool = False,
        keep_accents: bool = False,
        sample: int = 10_000_000,
    ) -> dict[str, Any]:
        """Checks the fields: V pieces, learned from at most `sample` sentences, or of `model`.

        Args:
            V: the number of pieces.
            model: a published model file; "" learns one.
            lower, keep_accents: see `normalization.clean_text`.
            sample: sentences to learn from; about 20 bytes of memory per character.
        """
        if sample <= 100:  # the library's own limit
            raise UserError(f"tokens.sample={sample}: learning needs more than 100 sentences")
        options = {"V": V, "lower": lower, "keep_accents": keep_accents}
        if not model:
            return options | {"sample": sample}
        return options | {"model": hashlib.sha256(_read_model(model)).hexdigest()}

    @classmethod
    def learn(cls, texts: Iterator[str], **fields: Any) -> "Tokenizer":
        """Learns from the texts, the same bytes each time; or reads the published model.

        Raises:
            UserError: the texts are too few for V pieces, or the published model has not V.
        """
        options = fill_defaults(cls.settings, fields)
        model, cleaning = options["model"], (options["lower"], options["keep_accents"])
        if model:
            tokenizer = cls(_read_model(model), *cleaning)
            check_size(options["V"], tokenizer.pieces, model)
            return tokenizer
        cleaned = (clean_text(text, *cleaning) for text in texts)
        return cls(_learn_model(_split_long(cleaned), options["V"], options["sample"]), *cleaning)

    def encode(self, texts: list[str]) -> list[np.ndarray]:
        cleaned = [clean_text(text, self.lower, self.keep_accents) for text in texts]
        encoded = self._library.encode(cleaned, out_type=int, num_threads=count_threads())
        return [self._split_commas(np.array(ids, np.int32)) for ids in encoded]

    def offsets(self, texts: list[str]) -> list[Offsets]:
        cleaned = [clean_with_origins(text, self.lower, self.keep_accents) for text in texts]
        encoded = self._library.encode(
            [whole.text for whole in cleaned],
            out_type="serialized_proto",
            num_threads=count_threads(),
        )
        offsets = []
        for text, whole, message in zip(texts, cleaned, encoded, strict=True):
            spans = _parse_spans(message, whole.text)
            pieces = [x for piece in spans for x in self._split_comma_span(*piece)]
            origins = [whole.origin(start, end) for _, start, end in pieces]
            offsets.append(make_offsets(text, [i for i, _, _ in pieces], origins))
        return offsets

    def decode(self, ids: Iterable[int]) -> str:
        return self._library.decode([int(i) for i in ids])

    def normalize(self, cleaned: str) -> str:
        """Returns what the model makes of a cleaned text before it cuts that into pieces."""
        return self._library.normalize(cleaned)

    def add_words(self, texts: Iterable[str], most: int) -> "Tokenizer":
        """Returns a tokenizer with the texts' commonest cut words as pieces behind its own.

        See `unigram_words.find_new_words`.

        Raises:
            UserError: the texts have fewer.
        """
        cleaned = (clean_text(text, self.lower, self.keep_accents) for text in texts)
        normalised = map(self.normalize, cleaned)
        new = find_new_words(
            normalised, most, self.pieces, self.scores, self._library.encode, self.special["unk"]
        )
        # Appended to a ModelProto, further `pieces`, each with `piece` and `score`, follow its own.
        fields = (
            protobuf.encode_bytes(1, word.encode()) + protobuf.encode_float(2, score)
            for word, score in new
        )
        more = b"".join(protobuf.encode_bytes(1, message) for message in fields)
        return Tokenizer(self.model + more, self.lower, self.keep_accents)

    def save(self, folder: Path) -> None:
        traits = {"name": "sentencepiece", "lower": self.lower, "keep_accents": self.keep_accents}
        saved_files.write_files(folder, {MODEL: self.model, TRAITS: json.dumps(traits).encode()})

    @classmethod
    def load(cls, folder: Path) -> "Tokenizer":
        traits = json.loads((folder / TRAITS).read_text())
        return cls((folder / MODEL).read_bytes(), traits["lower"], traits["keep_accents"])

    def _split_commas(self, ids: np.ndarray) -> np.ndarray:
        """Separates numbers from the commas after them, as XLNet does."""
        if not self._is_replaced_V[ids].any():  # as in most texts
            return ids
        apart = [self._replaced.get(i, [i]) for i in ids.tolist()]
        return np.array([i for piece in apart for i in piece], np.int32)

    def _split_comma_span(self, i: int, start: int, end: int) -> list[tuple[int, int, int]]:
        """Returns a piece and its span, or the pieces written for it and theirs."""
        parts: list[tuple[int, int, int]] = []
        # From behind: the comma is the last character, the number what is before it.
        for part in reversed(self._replaced.get(i, [i])):
            size = len(self.pieces[part].replace("▁", ""))
            parts.insert(0, (part, max(end - size, start), end))
            end = parts[0][1]
        return [(parts[0][0], start, parts[0][2]), *parts[1:]]

    def _without_comma(self, piece: str) -> list[int]:
        """Encodes "▁1990," as the number alone, with no blank it did not have, and a comma."""
        inner = self._library.encode(piece[:-1].replace("▁", ""), out_type=str)
        if not piece.startswith("▁") and inner[0].startswith("▁"):
            inner = [inner[0][1:], *inner[1:]] if len(inner[0]) > 1 else inner[1:]
        return [self._library.piece_to_id(p) for p in [*inner, ","]]


def _parse_spans(message: bytes, text: str) -> Iterator[tuple[int, int, int]]:
    """Yields (id, start, end) of each piece in a SentencePieceText."""
    # Its spans count bytes of UTF-8, ours characters.
    places = np.cumsum([0, *(len(char.encode()) for char in text)])
    for piece in protobuf.parse_fields(message).get(2, []):
        fields = protobuf.parse_fields(piece)  # of SentencePieceText: id, begin, end
        i, start, end = (fields.get(number, [0])[0] for number in (2, 4, 5))
        start, end = np.searchsorted(places, (start, end)).tolist()
        yield i, start, end


def starts_word(piece: str) -> bool:
    """Returns whether a word, a mark or a special token begins with this piece."""
    return piece.startswith(("▁", "<")) or piece in PUNCTUATION


def _read_model(model: str) -> bytes:
    try:
        return Path(model).expanduser().read_bytes()
    except OSError as error:
        raise UserError(f"tokens.model={model}: cannot be read: {error.strerror}") from error


def _split_long(texts: Iterator[str]) -> Iterator[str]:
    for text in texts:
        yield from text_lib.split_line(text, LONGEST)


def _learn_model(sentences: Iterator[str], V: int, sample: int) -> bytes:
    model, failures = io.BytesIO(), list[BaseException]()
    sentencepiece.set_random_generator_seed(0)  # it shuffles the sentences
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=_keep_error(filter(None, sentences), failures),
            model_writer=model,
            vocab_size=V,
            input_sentence_size=sample,
            **TRAINING,
        )
    except RuntimeError as error:
        if failures:
            raise failures[0] from None
        reason = str(error).rpartition("] ")[2] or str(error)  # without the line of its source
        raise UserError(f"tokens.V={V}: this corpus cannot give it: {reason}") from error
    return model.getvalue()


def _keep_error(sentences: Iterator[str], failures: list[BaseException]) -> Iterator[str]:
    """Passes sentences on, and keeps the error that ends them."""
    # The library would turn it into a RuntimeError with words of its own.
    try:
        yield from sentences
    except (Exception, KeyboardInterrupt) as error:
        failures.append(error)
        raise
