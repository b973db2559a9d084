"""Builds the hooks of a recipe's section `hooks`, which are modules of the user's own.

    config.hooks = dict(plateau=dict(name="mine.plateau", every=1000, factor=0.5))

adds the `Hook` of mine/plateau.py to a run.  Fields but `name` are arguments of its constructor.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from modules import plugins
from pretrain.runtime.errors import UserError
from pretrain.runtime.sections import name_section
from pretrain.training.hooks import CheckSaves, Evaluate, Hook, SaveCheckpoint
from pretrain.training.keep_best import KeepBest
from pretrain.training.reports.metrics_logger import MetricsLogger

BUILT_IN: tuple[type[Hook], ...] = (MetricsLogger, Evaluate, KeepBest, CheckSaves, SaveCheckpoint)


def build_hooks(sections: Mapping[str, Mapping[str, Any]]) -> list[Hook]:
    """Builds a hook of each section, in their order.

    Args:
        sections: fields of a hook by any label; `name` is its module.

    Raises:
        UserError: there is no such module, a field is not the hook's, or two hooks clash.
    """
    hooks = []
    for label, fields in sections.items():
        with name_section(f"hooks.{label}"):
            hooks.append(build_hook(**fields))
    check_hooks(hooks)
    return hooks


def build_hook(name: str = "", **fields: Any) -> Hook:
    """Builds the hook of a module; raises a `plugins.FieldError` where it has no such field."""
    return plugins.construct(plugins.load("", name, "Hook").Hook, **fields)


def check_hooks(hooks: Sequence[Hook]) -> None:
    """Refuses hooks that would overwrite each other's state or scalars.

    Raises:
        UserError: a hook has no name, two have the same, or two change one scalar.
    """
    names = [hook.name for hook in BUILT_IN] + [getattr(hook, "name", "") for hook in hooks]
    scalars = [scalar for hook in hooks for scalar in hook.scalars]
    if "" in names:
        raise UserError("hooks: one has no name, under which a checkpoint would keep its state")
    if twice := [name for name in names if names.count(name) > 1]:
        raise UserError(f"hooks: two are called {twice[0]!r}: a checkpoint has room for one state")
    if twice := [scalar for scalar in scalars if scalars.count(scalar) > 1]:
        raise UserError(f"hooks: two change the scalar {twice[0]!r}: leave one of them out")
