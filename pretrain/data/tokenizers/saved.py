"""Loads the tokenizer saved in a run or corpus folder."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pretrain.data import tokenizers
from pretrain.data.tokenizers import registry, saved_files
from pretrain.runtime.errors import UserError


class Tokenizer:
    """Loads the tokenizer saved in a folder, whatever its class; it saves as that class."""

    @staticmethod
    def settings(folder: str, extend: int | None = None) -> dict[str, Any]:
        """Hashes the files that `save` wrote in `folder`.

        Args:
            extend: how many new words one of whole words takes, the commonest; None: all.
        """
        tokenizer = registry.load(Path(folder).expanduser())  # refused now, if there are none
        if extend and not hasattr(tokenizer, "extend"):
            raise UserError("tokens.extend: only a tokenizer of whole words takes new ones")
        digest = {"digest": saved_files.hash_saved(Path(folder).expanduser())}
        return digest | ({"extend": extend} if extend is not None else {})

    @classmethod
    def learn(
        cls, texts: Iterator[str], folder: str, extend: int | None = None
    ) -> tokenizers.Tokenizer:
        """Loads the tokenizer in the folder; one of whole words takes new words from the texts.

        Args:
            extend: how many of them, see `settings`.

        Raises:
            UserError: the folder holds none.
        """
        tokenizer = registry.load(Path(folder).expanduser())
        if extend == 0 or not hasattr(tokenizer, "extend"):
            return tokenizer
        return tokenizer.extend(texts, extend)
