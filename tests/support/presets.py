"""The presets that recipes promise."""

import importlib
import re


def presets(recipe: str) -> list[str]:
    """Those that the recipe's docstring promises."""
    promised = importlib.import_module(f"configs.{recipe}").get_config.__doc__
    return re.findall(r'"([\w.]+)"', promised)
