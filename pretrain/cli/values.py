"""Checks the values that a command line gives keys of a recipe, in words for whoever typed them."""

import functools

from absl import flags
from ml_collections import ConfigDict

from pretrain.runtime.errors import UsageError

KINDS: tuple[tuple[type, flags.ArgumentParser, str], ...] = (
    # A bool before an int, which it is in Python.
    (bool, flags.BooleanParser(), "true or false"),
    (int, flags.IntegerParser(), "a whole number"),
    (float, flags.FloatParser(), "a number"),
)


def check_value(config: ConfigDict, key: str, text: str) -> None:
    """Checks that a key of a recipe can be set to what a text says.

    Raises:
        UsageError: the key is a section, or of a kind that the text is none of.
    """
    *above, name = key.split(".")
    section = functools.reduce(lambda values, part: values[part], above, config)
    value, kind = section[name], section.get_type(name)
    if isinstance(value, ConfigDict):
        if not text.lstrip().startswith("{"):  # which config_flags reads as a dict
            example = f"{key}.{next(iter(value), '...')}=..."
            raise UsageError(
                f"--config.{key}: {key} is a section; set a key of it, as --config.{example}, or "
                f"see --explain={key}"
            )
        return
    for known, parser, words in KINDS:
        if issubclass(kind, known):
            try:
                parser.parse(text)
            except ValueError:
                example = _give_example(known, text, value)
                raise UsageError(f"--config.{key}={text}: it is to be {words}{example}") from None
            return


def _give_example(kind: type, text: str, value: object) -> str:
    """Returns ", as 1000" for "1e3", and the recipe's own value where nothing is meant."""
    try:
        meant = int(float(text)) if kind is int else value
    except (ValueError, OverflowError):
        meant = value
    return "" if kind is bool or meant is None else f", as {meant}"
