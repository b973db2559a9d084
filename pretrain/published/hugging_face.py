"""What Hugging Face's folders have in common: a tokenizer.json where the older files lack."""

from typing import Any

from pretrain.errors import UserError
from pretrain.published import Source, unlike


def vocabulary(source: Source, kind: str) -> list[str]:
    """The pieces in a tokenizer.json, by id; UserError if it is of another kind."""
    ids = model(source, kind).get("vocab")
    if not isinstance(ids, dict) or sorted(ids.values()) != list(range(len(ids))):
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
