"""Loads the tokenizer saved in a run or corpus folder."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pretrain.data import tokenizers
from pretrain.data.tokenizers import registry, saved_files


class Tokenizer:
    """Loads the tokenizer saved in a folder, whatever its class; it saves as that class."""

    @staticmethod
    def settings(folder: str) -> dict[str, Any]:
        """Hashes the files that `save` wrote in `folder`."""
        registry.load(Path(folder).expanduser())  # refused now, if there are none
        return {"digest": saved_files.hash_saved(Path(folder).expanduser())}

    @classmethod
    def learn(cls, texts: Iterator[str], folder: str) -> tokenizers.Tokenizer:
        """Loads the tokenizer in the folder; one of whole words takes new words from the texts.

        Raises:
            UserError: the folder holds none.
        """
        tokenizer = registry.load(Path(folder).expanduser())
        extend = getattr(tokenizer, "extend", None)
        return extend(texts) if extend else tokenizer
