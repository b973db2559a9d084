"""Reads, writes and compares the recipe that a run keeps in config.json."""

import json
import pathlib
from collections.abc import Mapping
from typing import Any

from flax import traverse_util

from pretrain.runtime.addresses import remove_credentials
from pretrain.runtime.errors import UserError
from pretrain.runtime.files import PathLike
from pretrain.runtime.format_version import FORMAT, check_format
from pretrain.runtime.json_files import read_json, write_json

COMMAND = "command.txt"  # beside config.json: the line that began the run, or resumed it last
TASK = "task.json"  # beside it in a fine-tuned run: the section `task`, with labels and the like
DATA = "data.json"  # beside it: how much there was to train on, and to evaluate with
JOBS = ("seed-*", "fold-*", "seed-*/fold-*")  # folders of runs within a workdir
# Keys that recipes did not have once, and the values of which what they decide is as it was.
LATER = {
    "batches.pack": 0,
    "init_optimizer": False,
    "init_positions": "new",
    "init_tokens": "run",
    "corpus.text_key": "text",
    "corpus.tfds_split": "train",
    "corpus.tokens.extend": 0,
    "corpus.tokens.sample": 10_000_000,
    "train.stop_after": 0,
    "train.trackers": ["tensorboard"],
}
# Keys that runs have by another name, from before that was changed.
RENAMED = {"train.patience": "train.max_skips"}


def write_config(workdir: PathLike, config: Mapping[str, Any]) -> None:
    """Writes the recipe of a run to `config.json`, without credentials."""
    public = {"format": FORMAT, **redact_config(config)}
    # Others may read the file, to go on from the run, unless the recipe held credentials: removing
    # them is a matter of patterns, which may miss one.
    has_secrets = json.dumps(public) != json.dumps({"format": FORMAT, **config})
    write_json(pathlib.Path(workdir) / "config.json", public, private=has_secrets)


def find_jobs(workdir: pathlib.Path) -> list[pathlib.Path]:
    """Finds the runs of seeds and folds in a folder."""
    return sorted({x.parent for jobs in JOBS for x in workdir.glob(f"{jobs}/config.json")})


def require_run(workdir: PathLike) -> None:
    """Checks that a folder holds a run.

    Raises:
        UserError: it does not; where it holds those of seeds or folds, one is named.
    """
    workdir = pathlib.Path(workdir)
    if (workdir / "config.json").exists():
        return
    jobs = find_jobs(workdir)
    others = f"; it has those of several jobs: name one, as {jobs[0]}" if jobs else ""
    raise UserError(f"{workdir} holds no run: it has no config.json{others}")


def read_config(workdir: PathLike) -> dict:
    """Reads the recipe of the run in `workdir`.

    Raises:
        UserError: it is missing, broken, or of another format.
    """
    config = read_json(pathlib.Path(workdir) / "config.json")
    if not isinstance(config, dict):
        raise UserError(f"{workdir}: config.json holds no recipe")
    if "model_type" in config and "format" not in config:
        command = f"python -m pretrain.convert --source={workdir} --workdir=runs/imported"
        raise UserError(f"{workdir} holds published weights; {command} makes a run of them")
    # Before a key is looked at: another format names them otherwise.
    check_format(config, workdir)
    return config


def diff_configs(saved: Mapping[str, Any], present: Mapping[str, Any]) -> list[str]:
    """Lists where two nested dictionaries differ, as "optim.lr: 0.0004 -> 0.001"."""
    # Through JSON, as the saved one came: tuples are lists there.  Without credentials, which may
    # have changed, and are not to be printed.
    old, new = (flatten(redact_config(json.loads(json.dumps(x)))) for x in (saved, present))
    old = {RENAMED.get(name, name): value for name, value in old.items()}
    names = list(dict.fromkeys([*old, *new]))
    return [
        f"{name}: {old.get(name, '(absent)')} -> {new.get(name, '(absent)')}"
        for name in names
        # A run of before there was such a key has what an empty value stands for.
        if name not in new or old.get(name, LATER.get(name, "")) != new[name]
    ]


def redact_config(tree: Any) -> Any:
    """Returns a recipe, or a part of it, without the credentials of addresses."""
    if isinstance(tree, Mapping):
        return {name: redact_config(value) for name, value in tree.items()}
    if isinstance(tree, list | tuple):
        return [redact_config(value) for value in tree]
    return remove_credentials(tree) if isinstance(tree, str) else tree


def flatten(tree: dict) -> dict:
    """Returns {"optim.lr": value} for {"optim": {"lr": value}}."""
    return traverse_util.flatten_dict(tree, sep=".")
