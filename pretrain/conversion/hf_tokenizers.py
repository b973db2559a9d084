"""What Hugging Face's folders have in common: names of sizes, a tokenizer.json."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import tokenizers as library

from pretrain.conversion.systems import Source, unlike
from pretrain.runtime.errors import UserError
from pretrain.runtime.files import write_file

GPT = {
    "hidden_size": "n_embd",
    "max_position_embeddings": "n_positions",
    "num_attention_heads": "n_head",
    "num_hidden_layers": "n_layer",
}
ALIASES: dict[str, Mapping[str, str]] = {  # by model_type: other names that their code takes
    "bert": {},
    "gpt2": GPT,
    "openai-gpt": GPT,
    "xlnet": {
        "n_token": "vocab_size",
        "hidden_size": "d_model",
        "num_attention_heads": "n_head",
        "num_hidden_layers": "n_layer",
    },
}


def configuration(source: Source, model_type: str) -> dict[str, Any]:
    """What config.json says, under the names that such a model's own code has.

    Raises:
        UserError: it says two things under two names of one.
    """
    given = source.json("config.json")
    config = {name: value for name, value in given.items() if name not in ALIASES[model_type]}
    for alias, name in ALIASES[model_type].items():
        if alias in given and config.setdefault(name, given[alias]) != given[alias]:
            raise UserError(
                f"{source.folder / 'config.json'}: {alias} is {given[alias]!r} and {name} is "
                f"{config[name]!r}, two names of one number: leave one of them out"
            )
    return config


GENERIC = ("PreTrainedTokenizerFast", "TokenizersBackend")  # take tokenizer.json as it is
FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")


def whole(source: Source) -> dict[str, Any]:
    """The folder's tokenizer.json; {} if there is none."""
    return source.json("tokenizer.json") if source.has("tokenizer.json") else {}


def settings(source: Source) -> dict[str, Any]:
    """The folder's tokenizer_config.json; {} if there is none."""
    return source.json("tokenizer_config.json") if source.has("tokenizer_config.json") else {}


def part(source: Source, name: str, kind: str) -> dict[str, Any] | None:
    """A part of a tokenizer.json, which can be of this kind alone; None if it is not written.

    Raises:
        UserError: it is of another kind, or none.
    """
    found = whole(source).get(name, missing := {"type": kind})
    if not isinstance(found, dict) or found.get("type") != kind:
        other = found.get("type") if isinstance(found, dict) else found
        raise UserError(
            f"{source.folder / 'tokenizer.json'}: {name} is {other!r}, and only {kind} can be "
            "computed here"
        )
    return None if found is missing else found


def added(source: Source) -> dict[int, dict[str, Any]]:
    """By id, the pieces that the folder's files add to a vocabulary, with their flags.

    Raises:
        UserError: an entry is none, or two files differ.
    """
    config = settings(source).get("added_tokens_decoder") or {}
    older = source.json("added_tokens.json") if source.has("added_tokens.json") else {}
    try:
        entries = [(x["id"], x) for x in whole(source).get("added_tokens") or []]
        entries += [(int(i), x) for i, x in config.items()]
        known = {i for i, _ in entries}
        entries += [(i, {"content": x}) for x, i in older.items() if i not in known]
        made: dict[int, dict[str, Any]] = {}
        for i, entry in entries:
            flags = {name: bool(entry.get(name, False)) for name in FLAGS}
            piece = {"content": str(entry["content"])} | flags
            if made.setdefault(i, piece)["content"] != piece["content"]:
                raise UserError(f"{source.folder}: piece {i} is added twice, and differs")
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(f"{source.folder}: its added tokens are not as they should be") from error
    return dict(sorted(made.items()))


def joined(source: Source, pieces: list[str]) -> tuple[list[str], list[dict[str, Any]]]:
    """A vocabulary with the pieces that are added to it, and of those with text to be found in.

    Raises:
        UserError: their ids do not go on from the vocabulary's, or are other pieces'.
    """
    whole, extra = list(pieces), []
    for i, piece in added(source).items():
        if i == len(whole):
            whole.append(piece["content"])
        elif not 0 <= i < len(pieces) or pieces[i] != piece["content"]:
            raise UserError(
                f"{source.folder}: {piece['content']!r} is added as piece {i}, and there are "
                f"{len(whole)} pieces before it, of which it is none"
            )
        if i >= len(pieces) or not piece["special"]:
            extra.append(piece)
    return whole, extra


def write_tokenizer(folder: Path, tokenizer: library.Tokenizer, special: Iterable[str]) -> None:
    """Writes a tokenizer.json, in which these pieces are special."""
    tokenizer.add_special_tokens([library.AddedToken(x, special=True) for x in special])
    write_file(folder / "tokenizer.json", tokenizer.to_str(pretty=True).encode())


def vocabulary(source: Source, kind: str) -> list[str]:
    """The pieces in a tokenizer.json, by id; UserError if it is of another kind."""
    ids = model(source, kind).get("vocab")
    if not isinstance(ids, dict) or {*map(type, ids.values())} - {int}:
        ids = {"": -1}
    if sorted(ids.values()) != list(range(len(ids))):
        raise UserError(
            f"{source.folder / 'tokenizer.json'}: its vocabulary has no ids 0, 1, 2 ..."
        )
    return sorted(ids, key=ids.__getitem__)


def model(source: Source, kind: str) -> dict[str, Any]:
    """The section of that name, of a tokenizer of this kind ("BPE"); UserError if of another."""
    found = source.json("tokenizer.json").get("model")
    if not isinstance(found, dict) or found.get("type", kind) != kind:
        raise UserError(f"{source.folder / 'tokenizer.json'}: is no {kind} tokenizer")
    return found


def merges(source: Source) -> tuple[dict[str, int], list[str]]:
    """A BPE in a tokenizer.json: its pieces with their ids, added ones too, and lines of pairs.

    Raises:
        UserError: it is of another kind, or has no such parts.
    """
    found, more = model(source, "BPE"), source.json("tokenizer.json").get("added_tokens") or []
    try:
        ids = {**found["vocab"], **{piece["content"]: piece["id"] for piece in more}}
        return ids, [pair if isinstance(pair, str) else " ".join(pair) for pair in found["merges"]]
    except (KeyError, TypeError) as error:
        raise UserError(
            f"{source.folder / 'tokenizer.json'}: has no table of pieces, or no merges"
        ) from error


def check_byte_level(source: Source) -> None:
    """UserError if text is prepared for its byte-level BPE otherwise than GPT-2's code does it."""
    plain: dict[str, Any] = {"add_prefix_space": False, "type": "ByteLevel", "normalizer": None}
    for name in ("tokenizer_config.json", "tokenizer.json"):
        found = source.json(name) if source.has(name) else {}
        unlike(found | (found.get("pre_tokenizer") or {}), plain, source.folder / name)
