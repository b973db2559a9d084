"""Objectives: a batch in, metrics out (`modules.metrics`); those with `train` are minimised.

An objective is a Linen module whose first fields are a backbone and a language-model head, and
corruption draws from `make_rng("corrupt")`.  Its field `special` is the tokenizer's special ids.
What must survive between batches (XLNet's memory, LSTM states) is a collection other than
"params": `State.carry` keeps, shards and saves it.  Every array with a B in its name has one
entry per row of the batch there.

What is minimised is the mean of "loss" plus the mean of every other metric with `train=True`
(BERT's next sentence).  Adding an objective is one file here: `class Objective(nn.Module)`, named
by `config.objective.name`.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Protocol

import jax
from flax.core import FrozenDict

from modules import plugins
from modules.heads import language_model
from modules.metrics import Metrics
from pretrain.data.tokenizers.special_tokens import require_special
from pretrain.runtime.errors import UserError
from pretrain.runtime.sections import call_section, name_section

Special = Mapping[str, int]  # "cls", "sep", "pad", "mask", ... to ids: those the tokenizer has
SPECIAL: Special = FrozenDict()


class Objective(Protocol):
    """Defines what a backbone is trained for."""

    backbone: Any
    head: language_model.LanguageModelHead

    def __call__(self, batch: Mapping[str, Any], *, train: bool) -> Metrics:
        """Computes the metrics of a batch of a layout (`pretrain.data.batches`).

        Args:
            batch: arrays; `weight_B` is 0 for filler rows.
            train: dropout is on, and what only evaluation prints is left out.
        """
        ...

    def nats(self, batch: Mapping[str, Any]) -> tuple[jax.Array, jax.Array]:
        """Computes the log-likelihood of each token that the objective predicts.

        Randomness and states between batches are those of a call; there is no dropout.

        Returns:
            (nats [B, P], weights [B, P]); the weighted sum is that of "loss", but for its sign.
        """
        ...

    # One that needs special tokens has their names as `required_special`, ("mask",): checked before
    # a text is prepared.
    #
    # One that can predict chosen tokens of a text has, besides,
    # predicts_slots_together: whether all of a row's tokens may be asked for at once, and
    # slot_states(batch) -> h_BPD, the states that predict the tokens at `slots_BP` of `tokens_BL`
    # without having seen them; `pretrain.inference.token_scorer` reads both.

    def refusal(self) -> str:
        """Says in a line why the backbone cannot be trained so; "" if it can."""
        ...

    def flops(self, B: int, L: int) -> float:
        """Counts floating-point operations of one training step."""
        ...


class RowComparer(Protocol):
    """Defines an objective whose loss compares the rows of a batch with each other.

    With `train.parts` above 1 its rows are encoded in parts and compared all together
    (`pretrain.training.gradient_cache`).  One that says `compares_rows` and lacks the
    methods is refused there.  A call is `compare_rows` of `encode_rows`; it keeps no states
    between batches and records no statistics.

    Attributes:
        compares_rows: True; other objectives need not have it.
    """

    compares_rows: bool

    def encode_rows(self, batch: Mapping[str, Any], *, train: bool) -> dict[str, jax.Array]:
        """Computes arrays with an entry for each row, as their names say: "z_BD"."""
        ...

    def compare_rows(
        self, vectors: Mapping[str, jax.Array], batch: Mapping[str, Any], *, train: bool
    ) -> Metrics:
        """Computes the metrics of a batch from what `encode_rows` made of its rows."""
        ...


def build(
    name: str,
    backbone,
    special: Special = SPECIAL,
    *,
    head: Mapping[str, Any] | None = None,
    execution: Mapping[str, Any] | None = None,
    **fields: Any,
):
    """Builds an objective by its name, with a head for the backbone.

    Args:
        name: of a file in pretrain/objectives, or a dotted name.
        special: the tokenizer's special ids.
        head: fields of `language_model.LanguageModelHead`, where they are not the backbone's.
        execution: how a step is computed, as dict(loss_chunks=4); what neither the objective nor
            the backbone has a field for is an error.
        fields: what is computed.

    Raises:
        plugins.FieldError: no file of pretrain/objectives has this name, or the fields do not fit.
        UserError: nothing has a field of a name in `execution`, or the backbone cannot be trained
            so.
    """
    kind = load_kind(name)
    execution = dict(execution or {})
    options = plugins.select_fields(kind, execution)
    # Each takes what it has a field for; the backbone was built with its part before.
    supported = options.keys() | plugins.select_fields(type(backbone), execution).keys()
    if unknown := execution.keys() - supported:
        raise UserError(
            f"execution.{min(unknown)}: neither the backbone nor the objective {name!r} has it"
        )
    with name_section("head"):
        lm_head = language_model.build(backbone, **(head or {}))
    fields |= {"special": FrozenDict(special), **options}
    objective = plugins.construct(kind, backbone, lm_head, **fields)
    # Here, before anything is compiled: a refusal costs no minutes.
    if reason := _trace(objective.refusal):
        raise UserError(f"objective.name={name!r} does not train this model: {reason}")
    if lm_head.tied and _trace(lambda: _refuse_tied(backbone)):
        raise UserError("head.tied=True: this model reads characters, and has no embedding to tie")
    return objective


def load_kind(name: str) -> type[Objective]:
    """Returns the class of an objective; plugins.UnknownNameError if there is none."""
    return plugins.load("pretrain.objectives", name, "Objective").Objective


def build_of_run(run: Any, changes: Mapping[str, Any] = MappingProxyType({})):
    """Builds the objective that a run was trained with.

    Args:
        run: a `pretrain.inference.run.Run`.
        changes: fields that differ from the run's.

    Raises:
        UserError: the run has none, or as `build`.
    """
    if "objective" not in run.config:
        raise UserError(f"{run.workdir} holds a run without an objective: it was fine-tuned")
    return call_section(
        "objective",
        build,
        {**run.config.objective, **changes},
        backbone=run.backbone,
        head=run.config.get("head"),
        special=run.tokenizer.special,
        execution=run.config.get("execution"),
    )


def _refuse_tied(backbone: Any) -> str:
    return "characters" if backbone.V and backbone.example().ndim > 2 else ""


def _trace(f: Callable[[], str]) -> str:
    """Calls a function that may make arrays without touching a device."""
    # Processes must join each other (`jax.distributed.initialize`) before a device is touched.
    results: list[str] = []
    jax.eval_shape(lambda: results.append(f()))
    return results[0]


def special_id(special: Special, name: str) -> int:
    """Returns the id of <name>; raises UserError if the tokenizer has no such token."""
    require_special(special, [name], "this objective")
    return special[name]


def is_special(tokens_BL, special: Special, *names: str):
    """Returns bool [B, L]: whether each token is a special one of these names."""
    # `tokens_BL < 0` is False everywhere: the sum of no names has the right shape and type.
    return sum((tokens_BL == special_id(special, name) for name in names), start=tokens_BL < 0)


def refuse_width(backbone, head) -> str:
    """Says in a line why a head cannot read a backbone's states; "" if it can."""
    width = getattr(backbone, "width", backbone.D)
    rows = getattr(backbone, "embedding_size", 0)
    if rows and head.tied and not head.transform:
        return f"its tokens are {rows} wide and its states {width}: set head.transform=True"
    if width == head.D:
        return ""
    return f"its states are {width} wide and the head reads {head.D}: set model.D={width}"


def check_length(backbone, L: int) -> None:
    """Raises UserError if a row is longer than the backbone's table of positions."""
    positions = getattr(backbone, "L", L)
    if positions < L:
        raise UserError(f"L={L}: this model reads rows of at most {positions} tokens (model.L)")
