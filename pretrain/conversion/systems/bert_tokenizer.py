"""BERT's vocabularies: Google's vocab.txt, and Hugging Face's files of rules beside it."""

import re
from pathlib import Path
from typing import Any

from tokenizers import processors

from pretrain.conversion import config_fields as fields
from pretrain.conversion import hugging_face
from pretrain.conversion.systems import Source
from pretrain.data.tokenizers import wordpiece
from pretrain.runtime.errors import UserError
from pretrain.runtime.json_files import write_json

NORMALIZATION = {  # the names of tokenizer_config.json, and of a normalizer in tokenizer.json
    "do_lower_case": "lowercase",
    "strip_accents": "strip_accents",
    "tokenize_chinese_chars": "handle_chinese_chars",
}
MAX_CHARS = 100  # characters of a word in Hugging Face's code, where tokenizer.json does not say
MODEL = {"unk_token": wordpiece.SPECIAL["unk"], "continuing_subword_prefix": wordpiece.INSIDE}


def read_tokenizer(source: Source) -> wordpiece.Tokenizer:
    """Reads the vocabulary; text is lower-cased as the files or the option say."""
    # Where both of Hugging Face's files say something, tokenizer_config.json decides, as it does in
    # their code; under a general class only tokenizer.json counts.
    source = source.with_tokenizer_folder()
    is_theirs = source.kind == "hugging_face"
    rules = read_normalization(source) if is_theirs else {}
    if source.options.get("lower") is not None:
        rules["lowercase"] = source.options["lower"]
    is_plain = not (is_theirs and source.has("tokenizer.json"))
    pieces = (
        wordpiece.read_vocabulary(source.find_file("vocab.txt"))
        if is_plain
        else read_pieces(source)
    )
    # Google's files do not say: a cased vocabulary has capitals.
    cased = any(re.search("[A-Z]", x) for x in pieces if not re.fullmatch(r"\[.*\]", x))
    lower = rules.get("lowercase", not cased)
    accents = rules.get("strip_accents")
    more: dict[str, Any] = {}
    if is_theirs:
        joint, added = hugging_face.join_added_tokens(source, pieces)
        more = dict(
            clean_text=rules.get("clean_text", True),
            longest=read_max_chars(source),
            added=added,
            handle_chinese_chars=rules.get("handle_chinese_chars", True),
            base=None if len(joint) == len(pieces) else len(pieces),
        )
        pieces = joint
    # As BERT's code: where nothing is said of accents, they go with the capitals.
    return wordpiece.Tokenizer(pieces, lower, not (lower if accents is None else accents), **more)


def note_vocabulary(source: Source, tokens: wordpiece.Tokenizer, rows: int) -> tuple[str, ...]:
    """Returns what to say of a vocabulary beside an embedding of so many rows, and of its case.

    Raises:
        UserError: as `config_fields.check_vocabulary`.
    """
    return fields.check_vocabulary(tokens, rows, source.folder) + note_case(source, tokens)


def note_case(source: Source, tokens: wordpiece.Tokenizer) -> tuple[str, ...]:
    """Returns what to say where the vocabulary alone tells that capitals stay."""
    # Hugging Face's code overlooks that, and lowers the case.
    is_said = source.kind != "hugging_face" or source.options.get("lower") is not None
    if is_said or tokens.lower or "lowercase" in read_normalization(source.with_tokenizer_folder()):
        return ()
    return (
        "no file says whether text is lower-cased: it is not, as the vocabulary has capitals; "
        "transformers would, and so does --lower",
    )


def read_normalization(source: Source) -> dict[str, Any]:
    """Reads what is done to text before words are cut, under the names of a normalizer.

    Raises:
        UserError: it is nothing that BERT's own code does.
    """
    config = hugging_face.read_tokenizer_config(source)
    whole = hugging_face.read_tokenizer_json(source)
    normalizer = whole.read_part("normalizer", "BertNormalizer") or {}
    whole.read_part("pre_tokenizer", "BertPreTokenizer")
    where = Path(whole.where)
    rules = {
        x: fields.map_value(normalizer, x, fields.SWITCH, where)
        for x in (*NORMALIZATION.values(), "clean_text")
        if normalizer.get(x) is not None
    }
    if normalizer and config.get("tokenizer_class") in hugging_face.GENERIC_CLASSES:
        return rules
    where = source.folder / "tokenizer_config.json"
    for name, rule in NORMALIZATION.items():
        if config.get(name) is not None:
            rules[rule] = fields.map_value(config, name, fields.SWITCH, where)
    return rules


def read_pieces(source: Source) -> list[str]:
    """Reads the pieces of a tokenizer.json, but for added ones; UserError if two differ."""
    whole = hugging_face.read_tokenizer_json(source)
    pieces = whole.read_pieces("WordPiece")
    if (
        source.has("vocab.txt")
        and wordpiece.read_vocabulary(source.find_file("vocab.txt")) != pieces
    ):
        raise UserError(f"{source.folder}: vocab.txt and tokenizer.json have not the same pieces")
    wordpiece.check_special(pieces, whole.where)
    return pieces


def read_max_chars(source: Source) -> int:
    """Reads how many characters a word may have before it is unknown."""
    if not source.has("tokenizer.json"):
        return MAX_CHARS
    whole = hugging_face.read_tokenizer_json(source)
    where, model = Path(whole.where), whole.read_model("WordPiece")
    fields.require_equal(model, MODEL, where)
    field = "max_input_chars_per_word"
    return fields.read_size({field: MAX_CHARS} | model, field, where)


def write_tokenizer(folder: Path, pieces: wordpiece.Tokenizer, L: int) -> None:
    """Writes tokenizer.json, and tokenizer_config.json for a class that cuts text as ours."""
    # BertTokenizer cannot be told of these two.
    usual = pieces.clean_text and pieces.longest == MAX_CHARS
    write_json(
        folder / "tokenizer_config.json",
        dict(
            tokenizer_class="BertTokenizer" if usual else hugging_face.GENERIC_CLASSES[0],
            do_lower_case=pieces.lower,
            strip_accents=not pieces.keep_accents,
            tokenize_chinese_chars=pieces.handle_chinese_chars,
            model_max_length=L,
            model_input_names=hugging_face.INPUT_NAMES,
            **{f"{name}_token": piece for name, piece in wordpiece.SPECIAL.items()},
        ),
    )
    cls, sep = (wordpiece.SPECIAL[name] for name in ("cls", "sep"))
    whole = pieces.copy_library()
    whole.post_processor = processors.TemplateProcessing(
        single=f"{cls} $A {sep}",
        pair=f"{cls} $A {sep} $B:1 {sep}:1",
        special_tokens=[(x, pieces.pieces.index(x)) for x in (cls, sep)],
    )
    hugging_face.write_tokenizer(folder, whole, wordpiece.SPECIAL.values())
