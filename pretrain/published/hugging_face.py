"""What Hugging Face's folders have in common: a tokenizer.json where the older files lack."""

from typing import Any

from pretrain.errors import UserError
from pretrain.published import Source


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
