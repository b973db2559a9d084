"""Pretrains and uses language models from Python; the same as the commands do.

    import quartet

    run = quartet.train("bert:mini", "runs/bert", {"optim.steps": 1000})
    run = quartet.load("runs/bert")               # a run, an import or a fine-tuned run
    run.embed(["The state of the Union"])         # vectors [1, D]

Nothing is imported before it is used, and no flags are read.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pretrain.runtime.errors import UserError
    from quartet.trained_run import TrainedRun, load
    from quartet.training import load_recipe, train

__all__ = ["TrainedRun", "UserError", "load", "load_recipe", "train"]

PLACES = {
    "TrainedRun": "quartet.trained_run",
    "UserError": "pretrain.runtime.errors",
    "load": "quartet.trained_run",
    "load_recipe": "quartet.training",
    "train": "quartet.training",
}


def __getattr__(name: str) -> Any:
    # Importing JAX takes seconds, which the command that lists the others need not wait for.
    if name not in PLACES:
        raise AttributeError(f"module 'quartet' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(PLACES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
