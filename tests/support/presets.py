"""The presets that recipes promise."""

import importlib
import pathlib

from pretrain.runtime import recipe_files


def presets(module: str) -> list[str]:
    """Those that the docstring of a recipe, `configs.bert`, promises; "": it has none."""
    return recipe_files.list_presets(pathlib.Path(importlib.import_module(module).__file__))
