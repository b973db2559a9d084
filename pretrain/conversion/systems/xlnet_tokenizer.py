"""XLNet's vocabularies: spiece.model, and a tokenizer.json that cuts text as it does."""

import functools
import re
import sys
import unicodedata
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import tokenizers as library
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, processors

from pretrain.conversion import config_fields as fields
from pretrain.conversion import hugging_face
from pretrain.conversion.systems import Source
from pretrain.data.tokenizers import sentencepiece, tokenizer_json, unigram
from pretrain.data.tokenizers.normalization import clean_text
from pretrain.formats import protobuf
from pretrain.formats.base import explain_read_errors
from pretrain.inference.run import Run
from pretrain.runtime.errors import UserError
from pretrain.runtime.json_files import write_json

BLANK = "▁"
NORMAL, UNKNOWN, CONTROL, USER_DEFINED = 1, 2, 3, 4  # types of pieces in a SentencePiece model
PIECES, TRAINING, NORMALIZER = 1, 2, 3  # fields of its ModelProto
NOBODY, PRIVATE = "\U0010ffff", "\ue000"  # characters that no table of Unicode changes
PADDING_SEGMENT = 3  # in Hugging Face's code


class Pieces(NamedTuple):
    """The pieces of a SentencePiece model, with their scores and types."""

    names: list[str]
    scores: list[float]
    types: list[int]

    def select(self, *types: int) -> list[str]:
        pairs = zip(self.names, self.types, strict=True)
        return [name for name, kind in pairs if kind in types]


# --- in --------------------------------------------------------------------------------------


def read_tokenizer(source: Source) -> sentencepiece.Tokenizer | unigram.Tokenizer:
    """Reads the vocabulary of the release, or of the folder that the option names."""
    source = source.with_tokenizer_folder()
    # Without spiece.model it is a tokenizer.json, which cuts some texts otherwise.
    if source.has(tokenizer_json.NAME) and not source.has(sentencepiece.MODEL):
        path = source.find_file(tokenizer_json.NAME)
        if source.options.get("lower") is not None:
            raise UserError(
                f"--lower: {path} says how text is prepared: leave "
                f"it out, or put {sentencepiece.MODEL} beside it"
            )
        with explain_read_errors(path):
            return unigram.Tokenizer.of(path.read_text("utf-8"), path)
    path, config = source.find_file(sentencepiece.MODEL), {}
    if source.has("tokenizer_config.json"):
        config = source.read_json("tokenizer_config.json")
        fields.require_equal(
            config, {"remove_space": True}, source.find_file("tokenizer_config.json")
        )
    lower = source.options.get("lower")
    lower = config.get("do_lower_case", False) if lower is None else lower
    with explain_read_errors(path):
        return sentencepiece.Tokenizer(path.read_bytes(), lower, config.get("keep_accents", False))


# --- out -------------------------------------------------------------------------------------


def write_tokenizer(run: Run, folder: Path, theirs: str) -> None:
    """Writes the vocabulary, and for Hugging Face's code how text is prepared."""
    tokens: dict[str, Any] = dict(remove_space=True, model_input_names=hugging_face.INPUT_NAMES)
    if theirs == "hugging_face" and isinstance(run.tokenizer, unigram.Tokenizer):
        tokens |= describe_generic(run.tokenizer)
        (folder / tokenizer_json.NAME).write_text(run.tokenizer.model, "utf-8")
    else:
        pieces = fields.require_tokenizer(run, sentencepiece.Tokenizer, "SentencePiece")
        tokens |= dict(
            tokenizer_class="XLNetTokenizer",
            do_lower_case=pieces.lower,
            keep_accents=pieces.keep_accents,
        )
        (folder / sentencepiece.MODEL).write_bytes(pieces.model)
        if theirs == "hugging_face" and not refuse_json(pieces):
            # The class of their XLNet would prepare text by rules of its own.
            tokens |= describe_generic(pieces) | dict(split_special_tokens=True)
            marks = read_pieces(pieces).select(UNKNOWN, CONTROL)
            hugging_face.write_tokenizer(folder, build_library(pieces), marks)
    if theirs == "hugging_face":
        write_json(folder / "tokenizer_config.json", tokens)


def describe_generic(pieces: sentencepiece.Tokenizer | unigram.Tokenizer) -> dict[str, Any]:
    """Returns what tokenizer_config.json says for the class that takes tokenizer.json as it is."""
    marks = {
        f"{name}_token": pieces.pieces[i]
        for name, i in pieces.special.items()
        if name not in ("eod", "eop")
    }
    return dict(
        tokenizer_class=hugging_face.GENERIC_CLASSES[0],
        padding_side="left",
        pad_token_type_id=PADDING_SEGMENT,
        **marks,
    )


def note_tokenizer(run: Run, kind: str) -> list[str]:
    """Returns why no tokenizer.json is written, in a line, where one would cut text otherwise."""
    if kind != "hugging_face" or not isinstance(run.tokenizer, sentencepiece.Tokenizer):
        return []
    reason = refuse_json(run.tokenizer)
    rest = f"transformers makes one of {sentencepiece.MODEL} by rules of its own"
    return [f"no tokenizer.json: {reason}; {rest}"] if reason else []


def refuse_json(tokenizer: sentencepiece.Tokenizer) -> str:
    """Says why no tokenizer.json has the pieces of every text; "" if one has."""
    return _refuse_json(tokenizer.model, tokenizer.lower, tokenizer.keep_accents)


@functools.lru_cache(maxsize=1)  # it is asked to write the file, and to say why there is none
def _refuse_json(model: bytes, lower: bool, keep_accents: bool) -> str:
    tokenizer = sentencepiece.Tokenizer(model, lower, keep_accents)
    pieces = read_pieces(tokenizer)
    if tokenizer.keep_accents:
        return "accents that stand apart from their letters are joined there otherwise than here"
    commas = [name for name in pieces.select(NORMAL) if re.search(r"\d,$", name)]
    if commas:
        return (
            f"{len(commas)} pieces of this vocabulary, as {commas[0]!r}, are a number with a "
            "comma, which XLNet parts behind its model"
        )
    training = protobuf.parse_fields(read_field(tokenizer, TRAINING))
    if training.get(3, [1])[0] != 1 or {*pieces.types} - {NORMAL, UNKNOWN, CONTROL, USER_DEFINED}:
        return "this SentencePiece model is no plain unigram"
    letters = {name for name in pieces.select(NORMAL, USER_DEFINED) if len(name) == 1}
    if unknown := {*"".join(pieces.select(NORMAL))} - letters:
        return f"{min(unknown)!r} is in pieces of this vocabulary, and none itself"
    if is_cut_by_marks(pieces) and (unknown := {*"".join(list_marks(pieces))} - letters):
        return f"{min(unknown)!r} of its special pieces is no piece of this vocabulary"
    if find_other_characters(tokenizer):
        return "its model changes some characters otherwise than a tokenizer.json can"
    return ""


def build_library(tokenizer: sentencepiece.Tokenizer) -> library.Tokenizer:
    """Builds what cuts text into the same ids, and frames it as XLNet does."""
    pieces = read_pieces(tokenizer)
    model = models.Unigram(score_pieces(pieces), tokenizer.special["unk"], byte_fallback=False)
    whole = library.Tokenizer(model)
    whole.normalizer = build_normalizer(tokenizer, pieces)
    # A piece with a blank inside would need all words at once.
    if BLANK in pieces.names and not any(BLANK in name[1:] for name in pieces.names):
        whole.pre_tokenizer = pre_tokenizers.Split(BLANK, "merged_with_next")
    whole.decoder = decoders.Metaspace(BLANK, "always")
    sep, cls = (tokenizer.pieces[tokenizer.special[name]] for name in ("sep", "cls"))
    whole.post_processor = processors.TemplateProcessing(
        single=f"$A:0 {sep}:0 {cls}:2",
        pair=f"$A:0 {sep}:0 $B:1 {sep}:1 {cls}:2",
        special_tokens=[(sep, tokenizer.special["sep"]), (cls, tokenizer.special["cls"])],
    )
    return whole


def score_pieces(pieces: Pieces) -> list[tuple[str, float]]:
    """Scores the pieces so that the highest sum is of those that SentencePiece takes."""
    pairs = zip(pieces.scores, pieces.types, strict=True)
    scores = [score for score, kind in pairs if kind == NORMAL]
    # Less than their letters together: no text is one of the special pieces.
    never = min(scores) * max(map(len, pieces.names)) - 1 if is_cut_by_marks(pieces) else 0.0
    result = []
    for name, score, kind in zip(*pieces, strict=True):
        if kind == USER_DEFINED:  # as unigram_model.cc has it
            score = len(name.encode()) * max(scores) - 0.1
        result.append((name, never if kind in (UNKNOWN, CONTROL) else score))
    return result


def build_normalizer(tokenizer: sentencepiece.Tokenizer, pieces: Pieces) -> normalizers.Normalizer:
    """Builds XLNet's cleaning of text, see `clean_text`, and SentencePiece's behind it."""
    blanks, accents = list_characters(str.isspace), list_characters(unicodedata.combining)
    steps: list[normalizers.Normalizer] = [
        normalizers.Replace(Regex(f"{spell_class(blanks)}+"), " "),
        normalizers.Replace(Regex("``|''"), '"'),
        *(normalizers.Replace(x, parts) for x, parts in list_newer_characters()),
        normalizers.NFKD(),
        normalizers.Replace(Regex(spell_class(accents)), ""),
    ]
    if tokenizer.lower:
        # A sigma at the end of a word has a form of its own, which their rule does not know.
        cased, ignored = list_cased()
        before = rf"{spell_class(cased)}{spell_class(ignored)}*\K"
        after = rf"(?!{spell_class(ignored)}*{spell_class(cased)})"
        steps += [normalizers.Replace(Regex(f"{before}Σ{after}"), "ς"), normalizers.Lowercase()]
    steps.append(normalizers.NFC())  # joins Korean letters, as the model's own table does
    if not is_cut_by_marks(pieces):
        inner = "|".join(re.escape(name[1:]) for name in list_marks(pieces))
        steps.append(normalizers.Replace(Regex(f"<(?={inner})"), NOBODY))
    if table := protobuf.parse_fields(read_field(tokenizer, NORMALIZER)).get(2):
        steps.append(normalizers.Precompiled(bytes(table[0])))
    steps += [
        normalizers.Replace(Regex("^ +| +$"), ""),
        normalizers.Replace(Regex(" +"), BLANK),
        normalizers.Prepend(BLANK),
    ]
    return normalizers.Sequence(steps)


def is_cut_by_marks(pieces: Pieces) -> bool:
    """Tells if the pieces of text have "<", with which special pieces begin."""
    # Else it is unknown in text, as any other character that is nobody's.
    return any("<" in name for name in pieces.select(NORMAL))


def list_marks(pieces: Pieces) -> list[str]:
    return [name for name in pieces.select(UNKNOWN, CONTROL) if name.startswith("<")]


def find_other_characters(tokenizer: sentencepiece.Tokenizer) -> str:
    """Finds a character that tokenizer.json would prepare otherwise; "" if there is none."""
    every = list_assigned()
    text = " ".join(f"a{x}b" for x in every)
    ours = tokenizer.normalize(clean_text(text, tokenizer.lower, tokenizer.keep_accents))
    theirs = build_normalizer(tokenizer, read_pieces(tokenizer)).normalize_str(text)
    if ours == theirs:
        return ""
    pairs = zip(every, ours.split("b" + BLANK), theirs.split("b" + BLANK), strict=False)
    return next((x for x, one, two in pairs if one != two), every[-1])


def read_pieces(tokenizer: sentencepiece.Tokenizer) -> Pieces:
    """Reads the pieces of a SentencePiece model in the order of their ids."""
    messages = protobuf.parse_fields(tokenizer.model)[PIECES]
    types = [protobuf.parse_fields(message).get(3, [NORMAL])[0] for message in messages]
    return Pieces(tokenizer.pieces, tokenizer.scores, types)


def read_field(tokenizer: sentencepiece.Tokenizer, number: int) -> bytes:
    return protobuf.parse_fields(tokenizer.model).get(number, [b""])[0]


def list_characters(has: Any) -> list[str]:
    """Lists the characters of Unicode that have a property."""
    return [x for x in map(chr, range(sys.maxunicode + 1)) if has(x)]


@functools.cache
def list_assigned() -> list[str]:
    return list_characters(lambda x: unicodedata.category(x) not in ("Cn", "Co", "Cs"))


@functools.cache
def list_newer_characters() -> list[tuple[str, str]]:
    """Lists characters, and what they are made of, which are newer than the library's tables."""
    ours = [unicodedata.normalize("NFKD", x) for x in list_assigned()]
    theirs = normalizers.NFKD().normalize_str(PRIVATE.join(list_assigned())).split(PRIVATE)
    triples = zip(list_assigned(), ours, theirs, strict=True)
    # One that is joined again is left as it is: the library's tables would not join it.
    return [
        (x, one)
        for x, one, other in triples
        if one != other and unicodedata.normalize("NFKC", x) != x
    ]


@functools.cache
def list_cased() -> tuple[list[str], list[str]]:
    """Lists the characters that have a case, and others that stand between letters of a word."""
    # By what Python's own rule for a sigma makes of them.
    ends = list_characters(lambda x: f"{x}Σ".lower().endswith("ς"))
    inner = list_characters(lambda x: f"a{x}Σ".lower().endswith("ς"))
    return ends, [x for x in inner if x not in {*ends}]


def spell_class(characters: Iterable[str]) -> str:
    """Spells characters as a class of a regular expression."""
    ranges: list[list[int]] = []
    for code in sorted(map(ord, characters)):
        if ranges and ranges[-1][1] == code - 1:
            ranges[-1][1] = code
        else:
            ranges.append([code, code])
    return "[" + "".join(f"\\x{{{first:X}}}-\\x{{{last:X}}}" for first, last in ranges) + "]"
