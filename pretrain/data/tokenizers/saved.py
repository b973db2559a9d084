"""Loads the tokenizer saved in a run or corpus folder, and extends it by words of a text."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pretrain.data import tokenizers
from pretrain.data.tokenizers import registry, saved_files
from pretrain.runtime.errors import UserError


class Tokenizer:
    """Loads the tokenizer saved in a folder, whatever its class; it saves as that class."""

    @staticmethod
    def settings(
        folder: str,
        extend: int | None = None,
        known: int | None = None,
        rest: bool = False,
        digest: str = "",
    ) -> dict[str, Any]:
        """Hashes the files that `save` wrote in `folder`.

        Args:
            extend: how many of the text's commonest unknown words are added, see `add_words` of
                each tokenizer; None: all of them to one of whole words, none to others.
            known: of a tokenizer of whole words: its first so many alone are not unknown; None: all
                of them.
            rest: of one of whole words: the text's other words have ids, too, behind all others, as
                models need that read the characters of any word.
            digest: the hash of the tokenizer that is extended; one with another hash has these
                words already.

        Raises:
            UserError: the folder holds no tokenizer, one that takes no new words, or `extend` < 0.
        """
        tokenizer = registry.load(Path(folder).expanduser())  # refused now, if there is none
        if extend is not None and extend < 0:
            raise UserError(f"tokens.extend={extend}: words can only be added")
        if extend and not hasattr(tokenizer, "add_words"):
            kind = type(tokenizer).__module__.rpartition(".")[2]
            raise UserError(f"tokens.extend={extend}: a tokenizer of {kind} takes no new words")
        result = {"digest": digest or _hash(folder), "extend": extend, "known": known}
        given = {name: value for name, value in result.items() if value is not None}
        return given | ({"rest": True} if rest else {})

    @classmethod
    def learn(
        cls,
        texts: Iterator[str],
        folder: str,
        extend: int | None = None,
        known: int | None = None,
        rest: bool = False,
        digest: str = "",
    ) -> tokenizers.Tokenizer:
        """Loads the tokenizer in the folder, and adds words of the texts.

        Args:
            extend, known, rest, digest: see `settings`.

        Raises:
            UserError: the folder holds none, or the texts have fewer unknown words.
        """
        tokenizer: Any = registry.load(Path(folder).expanduser())
        if digest and digest != _hash(folder):
            return tokenizer
        is_of_words = hasattr(tokenizer, "extend")
        if not extend:
            is_whole = is_of_words and (extend is None or rest)
            return tokenizer.extend(texts) if is_whole else tokenizer
        more = {"known": known, "rest": rest} if is_of_words else {}
        return tokenizer.add_words(texts, extend, **more)


def _hash(folder: str) -> str:
    return saved_files.hash_saved(Path(folder).expanduser())
