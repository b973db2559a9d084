"""Folders that are filled as drafts, and appear whole or not at all."""

import contextlib
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from pretrain.formats.base import explain_write_errors
from pretrain.runtime.errors import UserError
from pretrain.runtime.locks import lock_workdir


@contextlib.contextmanager
def draft_folder(folder: Path, say: Callable[[str], None]) -> Iterator[Path]:
    """Gives a folder to fill, which is called `folder` once the work within has succeeded.

    Raises:
        UserError: something of that name is there already, or it cannot be written.
    """
    # A link that leads nowhere has the name, too.
    if os.path.lexists(folder):
        raise UserError(f"{folder} is there already: take another name")
    # Beside it: a rename within one file system happens at once or not at all.
    draft = folder.absolute().with_name(f".{folder.absolute().name}.draft")
    with undo_folders(draft.parent):
        try:
            with explain_write_errors(folder):
                _remove_rests([draft], say)
                draft.mkdir(parents=True)
            yield draft
            with explain_write_errors(folder):
                draft.rename(folder)
        except BaseException:
            # Whatever ended the work, an interrupt, too.
            remove(draft)
            raise


@contextlib.contextmanager
def draft_run(workdir: Path, parts: Sequence[str], say: Callable[[str], None]) -> Iterator[Path]:
    """Gives a folder to make a run in, whose parts move to `workdir` once the work has succeeded.

    Args:
        parts: names of what is made; the last is what makes a folder a run.

    Raises:
        UserError: `workdir` has such parts, is in use, or cannot be written.
    """
    draft, places = workdir / ".draft", [workdir / part for part in parts]
    # If the work fails, `workdir` is as it was, and absent if it was.
    with undo_folders(workdir), lock_workdir(workdir):
        if os.path.isdir(draft):
            # A draft beside parts is a move that was killed halfway.
            _remove_rests([*reversed(places), draft], say)
        check_vacant(workdir, parts)
        try:
            with explain_write_errors(workdir):
                draft.mkdir()
            yield draft
            with explain_write_errors(workdir):
                for part, place in zip(parts, places, strict=True):
                    (draft / part).rename(place)
                draft.rmdir()
        except BaseException:
            # First what makes it a run: at no moment is there a run without its weights.
            for path in (*reversed(places), draft):
                remove(path)
            raise


def check_vacant(workdir: Path, parts: Sequence[str]) -> None:
    """UserError if a run, or a part of one, is in this folder."""
    there = [part for part in parts if os.path.lexists(workdir / part)]
    if parts[-1] in there:
        raise UserError(f"{workdir} holds a run already: take another --workdir")
    if there:
        raise UserError(
            f"{workdir} holds {' and '.join(there)} of a run without {parts[-1]}: delete it, or "
            "take another --workdir"
        )


@contextlib.contextmanager
def undo_folders(folder: Path) -> Iterator[None]:
    """Removes what was made of `folder` and the folders above it, if the work within fails."""
    absent = [path for path in (folder, *folder.parents) if not os.path.lexists(path)]
    try:
        yield
    except BaseException:
        with contextlib.suppress(OSError):  # something else is in it by now
            for path in absent:
                if os.path.isdir(path):
                    path.rmdir()
        raise


def _remove_rests(paths: Sequence[Path], say: Callable[[str], None]) -> None:
    if rests := [path for path in paths if os.path.lexists(path)]:
        for path in rests:
            remove(path)
        say(f"removed what a killed process left: {', '.join(map(str, rests))}")


def remove(path: Path) -> None:
    for _ in range(20):  # threads of Orbax may still write there
        if not os.path.lexists(path):
            return
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path, ignore_errors=True)
        else:
            with contextlib.suppress(OSError):
                path.unlink()
        time.sleep(0.05 if os.path.lexists(path) else 0)
