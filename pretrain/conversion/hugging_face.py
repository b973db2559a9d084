"""Reads and writes what Hugging Face's folders have in common: a config.json, a tokenizer.json."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import tokenizers as library

from pretrain.conversion import config_fields
from pretrain.conversion.systems import Source
from pretrain.runtime.errors import UserError
from pretrain.runtime.files import write_file

GPT = {  # other names that a model's own code takes, and the one that it has
    "hidden_size": "n_embd",
    "max_position_embeddings": "n_positions",
    "num_attention_heads": "n_head",
    "num_hidden_layers": "n_layer",
}
XLNET = {
    "n_token": "vocab_size",
    "hidden_size": "d_model",
    "num_attention_heads": "n_head",
    "num_hidden_layers": "n_layer",
}
ACTIVATIONS = {  # their names -> ours
    "gelu_new": "gelu",  # the tanh form
    "gelu_pytorch_tanh": "gelu",
    "gelu_python_tanh": "gelu",
    "gelu_fast": "gelu",
    "gelu_accurate": "gelu",
    "gelu": "gelu_erf",
    "gelu_python": "gelu_erf",
    "relu": "relu",
}
# By whose code it is: to the authors of BERT and XLNet "gelu" is the tanh form.
ACTIVATIONS_BY_CODE = {
    "tensorflow": {"gelu": "gelu", "relu": "relu"},
    "hugging_face": ACTIVATIONS,
}
GENERIC_CLASSES = ("PreTrainedTokenizerFast", "TokenizersBackend")  # take tokenizer.json as it is
# Without it their code leaves segments out, and with them XLNet's whole term for segments.
INPUT_NAMES = ["input_ids", "token_type_ids", "attention_mask"]
FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")


def read_config(source: Source, aliases: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Reads what config.json says, under the names that such a model's own code has.

    Args:
        aliases: other names that it takes, and the one that it has.

    Raises:
        UserError: it says two things under two names of one.
    """
    given = source.read_json("config.json")
    # Newer files repeat a number under its general name: both are taken, if they agree.
    aliases = aliases or {}
    config = {name: value for name, value in given.items() if name not in aliases}
    for alias, name in aliases.items():
        if alias in given and config.setdefault(name, given[alias]) != given[alias]:
            raise UserError(
                f"{source.folder / 'config.json'}: {alias} is {given[alias]!r} and {name} is "
                f"{config[name]!r}, two names of one number: leave one of them out"
            )
    return config


def read_tokenizer_json(source: Source) -> dict[str, Any]:
    """Reads the folder's tokenizer.json; {} if there is none."""
    return source.read_json("tokenizer.json") if source.has("tokenizer.json") else {}


def read_tokenizer_config(source: Source) -> dict[str, Any]:
    """Reads the folder's tokenizer_config.json; {} if there is none."""
    return source.read_json("tokenizer_config.json") if source.has("tokenizer_config.json") else {}


def read_part(source: Source, name: str, kind: str) -> dict[str, Any] | None:
    """Reads a part of a tokenizer.json, which must be of this kind; None if it is not written.

    Raises:
        UserError: it is of another kind, or none.
    """
    part = read_tokenizer_json(source).get(name, missing := {"type": kind})
    if not isinstance(part, dict) or part.get("type") != kind:
        other = part.get("type") if isinstance(part, dict) else part
        raise UserError(
            f"{source.folder / 'tokenizer.json'}: {name} is {other!r}, and only {kind} can be "
            "computed here"
        )
    return None if part is missing else part


def read_added_tokens(source: Source) -> dict[int, dict[str, Any]]:
    """Reads, by id, the pieces that the folder's files add to a vocabulary, with their flags.

    Raises:
        UserError: an entry is none, or two files differ.
    """
    config = read_tokenizer_config(source).get("added_tokens_decoder") or {}
    older = source.read_json("added_tokens.json") if source.has("added_tokens.json") else {}
    try:
        entries = [(x["id"], x) for x in read_tokenizer_json(source).get("added_tokens") or []]
        entries += [(int(i), x) for i, x in config.items()]
        known = {i for i, _ in entries}
        # The older file names a piece and nothing else: the others, where they know it, say more.
        entries += [(i, {"content": x}) for x, i in older.items() if i not in known]
        pieces: dict[int, dict[str, Any]] = {}
        for i, entry in entries:
            flags = {name: bool(entry.get(name, False)) for name in FLAGS}
            piece = {"content": str(entry["content"])} | flags
            if pieces.setdefault(i, piece)["content"] != piece["content"]:
                raise UserError(f"{source.folder}: piece {i} is added twice, and differs")
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise UserError(f"{source.folder}: its added tokens are not as they should be") from error
    return dict(sorted(pieces.items()))


def join_added_tokens(source: Source, pieces: list[str]) -> tuple[list[str], list[dict[str, Any]]]:
    """Joins the added pieces to a vocabulary.

    Returns:
        the vocabulary; those of the added pieces that are found in text.

    Raises:
        UserError: their ids do not go on from the vocabulary's, or are other pieces'.
    """
    joint, extra = list(pieces), []
    for i, piece in read_added_tokens(source).items():
        if i == len(joint):
            joint.append(piece["content"])
        elif not 0 <= i < len(pieces) or pieces[i] != piece["content"]:
            raise UserError(
                f"{source.folder}: {piece['content']!r} is added as piece {i}, and there are "
                f"{len(joint)} pieces before it, of which it is none"
            )
        # A special piece of the vocabulary stands for itself, never for text that spells it.
        if i >= len(pieces) or not piece["special"]:
            extra.append(piece)
    return joint, extra


def write_tokenizer(folder: Path, tokenizer: library.Tokenizer, special: Iterable[str]) -> None:
    """Writes a tokenizer.json, in which these pieces are special."""
    tokenizer.add_special_tokens([library.AddedToken(x, special=True) for x in special])
    write_file(folder / "tokenizer.json", tokenizer.to_str(pretty=True).encode())


def read_vocabulary(source: Source, kind: str) -> list[str]:
    """Reads the pieces in a tokenizer.json, by id; UserError if it is of another kind."""
    ids: Any = read_model(source, kind).get("vocab")
    numbers = list(ids.values()) if isinstance(ids, dict) else []
    # True and 1 are equal to Python, and would be two pieces of one id.
    is_whole = {*map(type, numbers)} == {int} and sorted(numbers) == list(range(len(numbers)))
    if not is_whole:
        raise UserError(
            f"{source.folder / 'tokenizer.json'}: its vocabulary has no ids 0, 1, 2 ..."
        )
    return sorted(ids, key=ids.__getitem__)


def read_model(source: Source, kind: str) -> dict[str, Any]:
    """Reads the model of a tokenizer.json of this kind ("BPE"); UserError if of another."""
    model = source.read_json("tokenizer.json").get("model")
    if not isinstance(model, dict) or model.get("type", kind) != kind:
        raise UserError(f"{source.folder / 'tokenizer.json'}: is no {kind} tokenizer")
    return model


def read_merges(source: Source) -> tuple[dict[str, int], list[str]]:
    """Reads a BPE in a tokenizer.json: pieces with their ids, added ones too, and lines of pairs.

    Raises:
        UserError: it is of another kind, or has no such parts.
    """
    model = read_model(source, "BPE")
    added = source.read_json("tokenizer.json").get("added_tokens") or []
    try:
        ids = {**model["vocab"], **{piece["content"]: piece["id"] for piece in added}}
        return ids, [pair if isinstance(pair, str) else " ".join(pair) for pair in model["merges"]]
    except (KeyError, TypeError) as error:
        raise UserError(
            f"{source.folder / 'tokenizer.json'}: has no table of pieces, or no merges"
        ) from error


def check_byte_level(source: Source) -> None:
    """Refuses files that prepare text for a byte-level BPE otherwise than GPT-2's code does."""
    plain: dict[str, Any] = {"add_prefix_space": False, "type": "ByteLevel", "normalizer": None}
    for name in ("tokenizer_config.json", "tokenizer.json"):
        content = source.read_json(name) if source.has(name) else {}
        content |= content.get("pre_tokenizer") or {}
        config_fields.require_equal(content, plain, source.folder / name)
