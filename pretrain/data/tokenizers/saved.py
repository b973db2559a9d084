"""The tokenizer that a run left in its workdir, or a corpus in its folder."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pretrain.data import tokenizers


class Tokenizer:
    """Stands for a tokenizer of another kind, and becomes it: what it saves is of that kind."""

    @staticmethod
    def settings(folder: str) -> dict[str, Any]:
        """The files that `save` wrote in `folder`, known by their content."""
        tokenizers.load(Path(folder).expanduser())  # refused now, if there are none
        return {"digest": tokenizers.digest(Path(folder).expanduser())}

    @classmethod
    def learn(cls, texts: Iterator[str], folder: str) -> tokenizers.Tokenizer:
        """The tokenizer in the folder; the texts teach it nothing, but for the words it has not.

        Raises:
            UserError: the folder holds none.
        """
        tokenizer = tokenizers.load(Path(folder).expanduser())
        extended = getattr(tokenizer, "extended", None)
        return extended(texts) if extended else tokenizer
