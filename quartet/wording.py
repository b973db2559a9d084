"""Words errors for a caller from Python, who gives arguments where a command line has flags."""

import contextlib
import re
from collections.abc import Iterator

from pretrain.runtime.errors import UserError

RECIPE = re.compile(r"(?<![\w-])--config[.=]")  # before a key, or the name of a recipe
SWITCH = re.compile(r"(?<![\w-])--(accept_changes|cut)\b(?!=)")  # named alone, a flag is true
FLAG = re.compile(r"(?<![\w-])--(?=[a-z])")


@contextlib.contextmanager
def explain_to_callers() -> Iterator[None]:
    """Words a UserError that leaves the block for a caller; also decorates a function."""
    try:
        yield
    except UserError as error:
        error.args = tuple(name_arguments(str(part)) for part in error.args)
        raise


def name_arguments(message: str) -> str:
    """Returns a message whose flags are arguments: "--pool=x" is "pool=x"."""
    return FLAG.sub("", SWITCH.sub(r"\1=True", RECIPE.sub("", message)))
