"""Names the folder of a workdir's checkpoints, and lists those in it."""

import fnmatch
import os
import pathlib
import re

from pretrain.runtime.errors import UserError
from pretrain.runtime.files import PathLike


def find_folder(workdir: PathLike) -> pathlib.Path:
    """Returns the folder of a workdir's checkpoints; raises UserError for a path like a glob."""
    folder = pathlib.Path(workdir).resolve() / "checkpoints"
    # Orbax merges its files by a glob that it does not escape, and then reads none of them.
    is_literal = all(fnmatch.fnmatchcase(part, part) for part in folder.parts)
    if "\\" in str(folder) or "**" in str(folder) or not is_literal:
        raise UserError(
            f"{folder.parent}: checkpoints cannot be written below a path with [...], ** or a "
            "backslash in it; take another --workdir"
        )
    return folder


def find_workdir(path: PathLike) -> pathlib.Path:
    """Returns the folder of a run, absolute, before anything is made there.

    Raises:
        UserError: it is an address, or checkpoints cannot be written there.
    """
    if "://" in str(path):
        raise UserError(
            f"workdir={path}: a workdir is a folder; mount the bucket, see launch/README.md"
        )
    workdir = pathlib.Path(path).expanduser().absolute()
    find_folder(workdir)
    return workdir


def list_steps(folder: pathlib.Path) -> list[int]:
    """Lists the steps of the checkpoints in `folder`, newest first."""
    # Unfinished saves have names that are not numbers.
    names = os.listdir(folder) if folder.is_dir() else []
    numbers = (int(name) for name in names if re.fullmatch("0|[1-9][0-9]*", name))
    return sorted(numbers, reverse=True)
