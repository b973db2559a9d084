"""Finds the files that a pattern matches, each once, however many links lead to it."""

import glob
import os
from collections.abc import Iterator
from pathlib import Path

DEEP = "**"


def find_files(pattern: str) -> tuple[list[Path], list[str]]:
    """Finds files by a glob, in which `**` descends into folders and links to folders, each once.

    Returns:
        (the files, sorted by path; the links to others of them, or back to a folder above).
    """
    again = set[str]()
    names = {str(Path(name)) for name in _find_matches(pattern, again)}
    paths: dict[str, list[str]] = {}
    for name in filter(os.path.isfile, names):
        paths.setdefault(os.path.realpath(name), []).append(name)
    # A file that several paths lead to is read by the path with the fewest links, then the first.
    files = [min(same, key=_rank_name) for same in paths.values()]
    again |= {name for same in paths.values() for name in same} - {*files}
    return sorted(map(Path, files)), sorted(again)


def _rank_name(name: str) -> tuple[int, str]:
    path = Path(name)
    return sum(map(os.path.islink, (path, *path.parents))), name


def _find_matches(pattern: str, again: set[str]) -> Iterator[str]:
    """Yields the paths that match; adds to `again` the folders that were entered before."""
    # `glob.glob(recursive=True)` would follow a link to its own folder 40 times.
    steps = pattern.split("/")
    if DEEP not in steps:
        yield from glob.iglob(pattern)
        return
    at = steps.index(DEEP)
    top = "/".join(steps[:at]) or ("/" if at else ".")
    rest = "/".join(steps[at + 1 :]) or "*"
    for base in glob.iglob(top):
        for folder in _walk_folders(base, again):
            yield from _find_matches(os.path.join(glob.escape(folder), rest), again)


def _walk_folders(base: str, again: set[str]) -> Iterator[str]:
    # Hidden ones are left out, as glob does.
    # Links come last, so that a file is found by its own path if it has one here.
    visited, folders, links = set[str](), [base], list[str]()
    while folders or links:
        is_link = not folders
        folder = links.pop(0) if is_link else folders.pop(0)
        if (real := os.path.realpath(folder)) in visited:
            again.add(folder)
            continue
        visited.add(real)
        yield folder
        for name in _list_folder(folder):
            path = os.path.join(folder, name)
            if os.path.isdir(path):
                (links if os.path.islink(path) else folders).append(path)


def _list_folder(folder: str) -> list[str]:
    try:
        return sorted(name for name in os.listdir(folder) if not name.startswith("."))
    except OSError:  # no folder, or not readable: glob passes over it too
        return []
