"""Trackers: where a run's numbers go beside its metrics.jsonl, one a file.

`train.trackers` names files of this folder, or modules of your own with a dot, that define a
`Tracker`.  metrics.jsonl is always written: plots, results and resuming read it.
"""

import importlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

import jax
from ml_collections import ConfigDict

from modules import plugins
from pretrain.runtime.errors import UserError
from pretrain.runtime.json_files import read_json, write_json
from pretrain.runtime.progress import say
from pretrain.runtime.run_config import redact_config
from pretrain.runtime.sections import name_section

FOLDER = "pretrain.training.reports.trackers"
IDS = "trackers.json"  # beside config.json: by tracker, the id of the run there


class Tracker(Protocol):
    """One life of a run, as a service or a file sees it: `Tracker(workdir, step, config)`.

    Attributes:
        is_remote: what goes wrong is told once, and the run goes on without it; else the run ends.
    """

    is_remote: bool

    def add(self, step: int, values: Mapping[str, float]) -> None:
        """Adds finite numbers of a step."""
        ...

    def flush(self) -> None:
        """Puts on disk what was added: a checkpoint counts it as done."""
        ...

    def close(self) -> None: ...


def open_trackers(
    names: Sequence[str], workdir: str | Path, step: Any, config: ConfigDict
) -> dict[str, Tracker]:
    """Opens the trackers of these names.

    Args:
        step: the first to come; what earlier lives added of it and of later ones is done again.
        config: the recipe, which trackers show without credentials.

    Returns:
        Trackers by name, without the remote ones that fail; {} in all processes but the first.

    Raises:
        UserError: there is no such tracker, its package is not installed, or its file cannot be
            written.
    """
    with name_section("train.trackers"):
        kinds = {name: plugins.load(FOLDER, name, "Tracker").Tracker for name in names}
    if jax.process_index():
        return {}
    public = redact_config(json.loads(config.to_json_best_effort()))
    trackers = {}
    for name, kind in kinds.items():
        try:
            trackers[name] = kind(Path(workdir), int(step), public)
        except UserError:
            raise
        except Exception as error:  # another's service may raise anything
            if getattr(kind, "is_remote", False):
                say(f"{name} fails, and the run goes on without it: {error}")
            elif isinstance(error, OSError):
                why = error.strerror or error
                raise UserError(f"cannot write {error.filename or workdir}: {why}") from error
            else:
                raise
    return trackers


def import_package(name: str) -> ModuleType:
    """Imports the package of a tracker; raises a UserError if it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise UserError(
            f"train.trackers: {name} cannot be imported ({error}); pip install {name}"
        ) from error


def find_id(workdir: Path, tracker: str) -> str:
    """Returns the id of a run with a tracker; "": it has none yet."""
    return str(read_json(workdir / IDS).get(tracker, "")) if (workdir / IDS).exists() else ""


def save_id(workdir: Path, tracker: str, known: str) -> str:
    """Keeps the id of a run with a tracker for its later lives, and returns it."""
    ids = read_json(workdir / IDS) if (workdir / IDS).exists() else {}
    write_json(workdir / IDS, {**ids, tracker: known})
    return known
