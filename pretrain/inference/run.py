"""Holds a trained run for all that needs no weights."""

import pathlib
from typing import Any, NamedTuple

from ml_collections import ConfigDict

from pretrain.data.tokenizers import Tokenizer


class Run(NamedTuple):
    """Holds what a workdir does, without the weights.

    Attributes:
        backbone: a Linen module; None where a task was learned by a network of its own alone.
        head: the backbone's language-model head, by the recipe's section or else by the backbone
            alone.
    """

    workdir: pathlib.Path
    config: ConfigDict
    tokenizer: Tokenizer
    backbone: Any
    head: Any

    @property
    def reads_characters(self) -> bool:
        """Returns whether words are read by their characters, also those without an id."""
        return getattr(self.backbone, "inputs", "") == "characters"
