"""Objectives: a batch in, metrics out (`modules.metrics`); those with `train` are minimised.

An objective is a Linen module whose first field is a backbone, so heads are parameters and
corruption draws from `make_rng("corrupt")`.  Its field `special` is the tokenizer's special ids.
What must survive between batches (XLNet's memory, LSTM states) is a collection other than
"params": `State.carry` keeps, shards and saves it.  Every array with a B in its name has one
entry per row of the batch there.

What is minimised is the mean of "loss" plus the mean of every other metric with `train=True`
(BERT's next sentence).  Adding an objective is one file here: `class Objective(nn.Module)`, named
by `config.objective.name`.
"""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import jax
from flax.core import FrozenDict

from modules import plugins
from modules.metrics import Metrics
from pretrain.runtime.errors import UserError

Special = Mapping[str, int]  # "cls", "sep", "pad", "mask", ... to ids: those the tokenizer has
SPECIAL: Special = FrozenDict()


class Objective(Protocol):
    """What a backbone is trained for."""

    backbone: Any

    def __call__(self, batch: Mapping[str, Any], *, train: bool) -> Metrics:
        """Computes the metrics of a batch of a layout (`pretrain.data.batches`).

        Args:
            batch: arrays; `weight_B` is 0 for filler rows.
            train: dropout is on, and what only evaluation prints is left out.
        """
        ...

    def refusal(self) -> str:
        """Says in a line why the backbone cannot be trained so; "" if it can."""
        ...

    def flops(self, B: int, L: int) -> float:
        """Counts floating-point operations of one training step."""
        ...


def build(
    name: str,
    backbone,
    special: Special = SPECIAL,
    *,
    execution: Mapping[str, Any] | None = None,
    **fields: Any,
):
    """Builds an objective: `build("plm", backbone, one_in=6)` is `plm.Objective(backbone, 6)`.

    Args:
        name: of a file in pretrain/objectives, or a dotted name.
        special: the tokenizer's special ids.
        execution: how a step is computed, as dict(loss_chunks=4); what neither the objective nor
            the backbone has a field for is an error.
        fields: what is computed.

    Raises:
        plugins.FieldError: no file of pretrain/objectives has this name, or the fields do not fit.
        UserError: nothing has a field of a name in `execution`, or the backbone cannot be trained
            so.
    """
    objective = plugins.load("pretrain.objectives", name, "Objective").Objective
    execution = dict(execution or {})
    own = plugins.select_fields(objective, execution)
    known = own.keys() | plugins.select_fields(type(backbone), execution).keys()
    if unknown := execution.keys() - known:
        raise UserError(
            f"execution.{min(unknown)}: neither the backbone nor the objective {name!r} has it"
        )
    fields |= {"special": FrozenDict(special), **own}
    built = plugins.construct(objective, backbone, **fields)
    if reason := _abstractly(built.refusal):
        raise UserError(f"objective.name={name!r} does not train this model: {reason}")
    return built


def _abstractly(f: Callable[[], str]) -> str:
    """Calls a function that may make arrays without touching a device.

    Processes must join each other (`jax.distributed.initialize`) before a device is touched.
    """
    results: list[str] = []
    jax.eval_shape(lambda: results.append(f()))
    return results[0]


def special_id(special: Special, name: str) -> int:
    """The id of <name>.

    Raises:
        UserError: the tokenizer has no such token.
    """
    if name not in special:
        raise UserError(
            f"this objective needs a token <{name}>, but the tokenizer has only "
            f"{', '.join(special) or 'none'}: take another corpus.tokens.name"
        )
    return special[name]


def is_special(tokens_BL, special: Special, *names: str):
    """Bool [B, L]: these are special tokens of such names."""
    return sum((tokens_BL == special_id(special, name) for name in names), start=tokens_BL < 0)


def check_length(backbone, L: int) -> None:
    """UserError if a backbone has a number of positions, and a row is longer."""
    positions = getattr(backbone, "L", L)
    if positions < L:
        raise UserError(f"L={L}: this model reads rows of at most {positions} tokens (model.L)")
