"""The tokenizer that a run left in its workdir, or a corpus in its folder."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pretrain.data import tokenizers
from pretrain.errors import UserError


class Tokenizer:
    """Stands for a tokenizer of another kind, and becomes it: what it saves is of that kind."""

    @staticmethod
    def settings(folder: str) -> dict[str, Any]:
        """The files that `save` wrote in `folder`, known by their content."""
        return {"digest": tokenizers.digest(_checked(folder))}

    @classmethod
    def learn(cls, texts: Iterator[str], folder: str) -> tokenizers.Tokenizer:
        """The tokenizer in the folder; the texts teach it nothing.

        Raises:
            UserError: the folder holds none.
        """
        return tokenizers.load(_checked(folder))


def _checked(folder: str) -> Path:
    path = Path(folder).expanduser()
    try:
        tokenizers.kind(json.loads((path / tokenizers.TRAITS).read_text())["name"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"tokens.folder={folder}: no tokenizer was saved there") from error
    return path
