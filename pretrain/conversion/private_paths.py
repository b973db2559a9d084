"""Hides where files lie on a machine, in texts that others will read."""

import os
import re
import shlex
from collections.abc import Mapping
from typing import Any

# An absolute path, or one that leads out of a folder, up to a quote, a bracket, or the comma before
# the next one.  It begins a text or stands behind a sign, as in "text:/a/*.txt" or "--init=~/a";
# the slashes of an address, "gs://bucket/a", belong to no path.
PATH = re.compile(
    r"""(?:^|(?<=[\s=:,;|'"(\[{])|(?<=file://))(?!//)"""
    r"""(?:/(?!\s|$)|~[\w.-]*/|(?:\.\./)+|\.\.$)"""
    r"""(?:[^,;|'")\]}]|['")\]}](?![\s,:;'")\]}]|$)|,(?!\s*(?:/|~|\.\.|[\w.]+[=:])))*"""
)


def hide_paths(value: Any) -> Any:
    """Returns a value, or all that it holds, with paths outside of the current folder shortened.

    Of such a path the last part is left, as ".../tokenizer"; one within is relative to the folder.
    """
    if isinstance(value, Mapping):
        return {name: hide_paths(x) for name, x in value.items()}
    if isinstance(value, list | tuple):
        return [hide_paths(x) for x in value]
    return PATH.sub(lambda match: _shorten(match[0]), value) if isinstance(value, str) else value


def hide_words(command: str) -> str:
    """Returns a line of a shell with the paths of its words shortened, see `hide_paths`."""
    try:
        return shlex.join(map(hide_paths, shlex.split(command)))
    except ValueError:  # no line of a shell: each word is none of several lines
        return hide_paths(" ".join(command.split()))


def _shorten(path: str) -> str:
    here = os.getcwd()
    path = os.path.expanduser(path)
    # A home that is not known here stays as it is, and would be a folder's name in this one.
    full = os.path.normpath(os.path.join("/" if path.startswith("~") else here, path))
    # A folder at the root holds everything, and leaves nothing outside.
    if here != "/" and full == here:
        return "."
    if here != "/" and full.startswith(f"{here}/"):
        return os.path.relpath(full, here)
    name = os.path.basename(full)
    # Homes are named after people.
    is_home = os.path.dirname(full) in ("/home", "/Users") or full == os.path.expanduser("~")
    return f".../{name}" if name and not is_home else "..."
