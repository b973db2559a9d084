"""Fields of a published configuration, checked as they are read; of our model, as it is written."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from pretrain.conversion.systems import Source
from pretrain.data.tokenizers import Tokenizer
from pretrain.runtime.errors import UserError

T = TypeVar("T")
SWITCH = {True: True, False: False}
PADDED_TO = [1 << k for k in range(3, 11)]  # what multiples of rows devices like


def map_value(config: Mapping[str, Any], field: str, known: Mapping[Any, Any], where: Path) -> Any:
    """Maps the value of a field to ours.

    Raises:
        UserError: it is missing, or none of those known.
    """
    value = config.get(field)
    if value not in list(known):  # it may be a list, which is no key
        names = ", ".join(map(repr, known))
        raise UserError(f"{where}: {field} is {value!r}, and here can only be {names}")
    return known[value]


def require_equal(config: Mapping[str, Any], required: Mapping[str, Any], where: Path) -> None:
    """Refuses a field that is set to anything but what our arithmetic has.

    Raises:
        UserError: one is.
    """
    for field, value in required.items():
        if field in config and config[field] != value:
            raise UserError(
                f"{where}: {field} is {config[field]!r}, and only {value!r} can be computed here"
            )


def read_size(config: Mapping[str, Any], field: str, where: Path) -> int:
    """Reads a field that is a positive whole number; UserError if not."""
    value = config.get(field)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise UserError(f"{where}: {field} is {value!r}, and should be a whole number above 0")
    return value


def read_nonnegative(config: Mapping[str, Any], field: str, where: Path) -> float:
    """Reads a field that is a finite number, 0 or above; UserError if not."""
    value = config.get(field)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise UserError(f"{where}: {field} is {value!r}, and should be a number, 0 or above")
    return value


def read_rate(config: Mapping[str, Any], field: str, where: Path) -> float:
    """Reads a dropout rate, below 1; UserError if it is none."""
    value = read_nonnegative(config, field, where)
    if value >= 1:
        raise UserError(f"{where}: {field} is {value!r}, and should be below 1")
    return value


def read_layers(config: Mapping[str, Any], field: str, source: Source, where: Path) -> int:
    """Reads how many layers there are; UserError if they are more than the arrays."""
    layers, arrays = read_size(config, field, where), len(source.specs)
    if arrays and layers > arrays:
        raise UserError(f"{where}: {field} is {layers:,}, and the weights are {arrays:,} arrays")
    return layers


def check_vocabulary(tokenizer: Tokenizer, rows: int, where: Path) -> tuple[str, ...]:
    """Returns what to say of an embedding of so many rows, with this tokenizer.

    Raises:
        UserError: the two do not belong together: rows beyond the pieces are none that fill up
            a table to a multiple of 8, 16, ... 1024.
    """
    V = tokenizer.V
    if rows == V:
        return ()
    if rows > V and any(-(-V // step) * step == rows for step in PADDED_TO):
        return (f"rows {V:,} to {rows - 1:,} of the embedding are padding, and no piece's",)
    raise UserError(
        f"{where} has {V:,} pieces, but the weights have {rows:,} rows: they do not belong "
        "together; more rows are taken where they fill up a multiple of 8 to 1024"
    )


def require_fields(ours: Any, required: Mapping[str, Any], name: str = "model") -> None:
    """Refuses a model, or a tokenizer, whose fields are not what theirs can only be.

    Raises:
        UserError: one is another.
    """
    for field, value in required.items():
        if (actual := getattr(ours, field)) != value:
            raise UserError(f"{name}.{field}={actual!r}: theirs can only be {value!r}")


def require_parts(run: Any, backbone: Mapping[str, Any], head: Mapping[str, Any]) -> Any:
    """Returns the run's backbone, if the backbone and the head have these fields.

    Raises:
        UserError: one of them computes what theirs cannot.
    """
    require_fields(run.backbone, backbone)
    # A fine-tuned run has lost it: what its recipe says of one is of no weights.
    if "objective" in run.config:
        require_fields(run.head, head, "head")
    return run.backbone


def require_tokenizer(run: Any, kind: type[T], name: str) -> T:
    """Returns the run's tokenizer; UserError if it is not of the kind that goes by this name."""
    if not isinstance(run.tokenizer, kind):
        raise UserError(f"the tokenizer of such a release is {name}: this run has another")
    return run.tokenizer


def export_activation(ours: Any, activations: dict[str, str], where: Path) -> str:
    """Returns their name for our backbone's activation; UserError if they have none."""
    return map_value(vars(ours), "activation", invert(activations), where)


def invert(activations: dict[str, str]) -> dict[str, str]:
    # The last to be set stays: of several names the first.
    return {ours: theirs for theirs, ours in reversed(activations.items())}
