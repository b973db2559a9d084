"""Finds a path that does not exist yet."""

import itertools
import os
import pathlib


def vacant(path: pathlib.Path) -> pathlib.Path:
    """`path`, or the first of path-1, path-2, ... that does not exist."""
    numbered = (path.with_name(f"{path.name}-{n}") for n in itertools.count(1))
    return next(each for each in itertools.chain([path], numbered) if not os.path.lexists(each))
