"""Published weights: one file per system says how its releases name and arrange what ours do.

A system is a module here with

    KINDS: dict[str, Kind]                  the kinds of releases it is known in, by name
    TEXT_FORMAT: str                        how it frames texts (pretrain.inference.text_formats)
    described(source: Source) -> Described  what a release holds, as a run of ours would say it
    table(kind, shapes, names) -> Table     their names and ours (pretrain.conversion.name_map)
    companions(run, folder, kind, dtype)    writes all but the weights: config, tokenizer files
    writes(run, kind) -> bool               whether a run is of the models that this kind is of
    advice(run, kind) -> [str]              what to tell who loads what was written; may lack
    checked(run, source) -> {name: (difference, most allowed)}, of what a release says it computes

and no arithmetic: reading files is `pretrain.formats`, moving arrays is `pretrain.converting`.
"""

import dataclasses
import importlib
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from pretrain.data.tokenizers import Tokenizer
from pretrain.formats import Spec
from pretrain.runtime.errors import UserError
from pretrain.runtime.files import read_json

T = TypeVar("T")
PADDED_TO = [1 << k for k in range(3, 11)]  # what multiples of rows devices like
SYSTEMS = ("bert", "gpt", "xlnet", "elmo")


@dataclasses.dataclass(frozen=True)
class Kind:
    """A kind of release.

    Attributes:
        format: a module of `pretrain.formats`.
        knows: a file of this name pattern tells that a folder is of this kind.
        weights: where the weights are in the folder; "": the folder itself says.
        model_type: what Hugging Face's config.json calls the system.
        out: whether ours are written so, too.
    """

    format: str
    knows: str
    weights: str = ""
    model_type: str = ""
    out: bool = True


@dataclasses.dataclass(frozen=True)
class Source:
    """A release that was found: its folder, its kind, and the arrays there are."""

    folder: Path
    kind: str
    specs: Mapping[str, Spec]
    # "lower": whether text is lower-cased; "vocabulary": a folder with other tokenizer files
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def json(self, name: str) -> dict[str, Any]:
        """A JSON file of the folder; UserError if it is missing or no object."""
        found = read_json(self.path(name))
        if not isinstance(found, dict):
            raise UserError(f"{self.folder / name}: is no JSON object")
        return found

    def path(self, *names: str) -> Path:
        """The first of these files, as patterns, that is there.

        Raises:
            UserError: none is.
        """
        for name in names:
            if found := sorted(self.folder.glob(name)):
                return found[0]
        raise UserError(f"{self.folder} has no {' or '.join(names)}")

    def of_tokens(self) -> "Source":
        """Where the tokenizer's files are: here, or in the folder that the option names."""
        given = self.options.get("vocabulary")
        return dataclasses.replace(self, folder=Path(given).expanduser()) if given else self

    def has(self, *names: str) -> bool:
        """Whether one of these files is there."""
        return any(any(self.folder.glob(name)) for name in names)


@dataclasses.dataclass(frozen=True)
class Described:
    """What a release is in our words.

    Attributes:
        objective, batches: sections of a recipe, with every value that its arithmetic needs.
        model: the section `model`, with the name of the module.
        text_format: the system's `TEXT_FORMAT`.
        tokenizer: of as many pieces as the embedding has rows.
        heads: shapes of the objective's own parameters, beside "backbone".
        missing: parts of the system that the release has not, and the run will not have.
        notes: lines to say, of what is not as the reader may expect.
    """

    model: dict[str, Any]
    objective: dict[str, Any]
    text_format: str
    batches: dict[str, Any]
    tokenizer: Tokenizer
    heads: dict[str, tuple[int, ...]] = dataclasses.field(default_factory=dict)
    missing: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def system(name: str) -> Any:
    """The module of that name.

    Raises:
        UserError: it is not known.
    """
    if name not in SYSTEMS:
        raise UserError(f"system {name!r} is not known; there are {', '.join(SYSTEMS)}")
    return importlib.import_module(f"{__name__}.{name}")


def tokens_of(run: Any, kind: type[T], name: str) -> T:
    """The run's tokenizer; UserError if it is not of the kind that the system has, of this name."""
    if not isinstance(run.tokenizer, kind):
        raise UserError(f"the tokenizer of such a release is {name}: this run has another")
    return run.tokenizer


def check_vocabulary(tokenizer: Tokenizer, rows: int, where: Path) -> tuple[str, ...]:
    """What to say of an embedding of so many rows, with this tokenizer.

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


def chosen(config: Mapping[str, Any], field: str, known: Mapping[Any, Any], where: Path) -> Any:
    """What one of the values of a field that we know means.

    Raises:
        UserError: it is missing, or another.
    """
    value = config.get(field)
    if value not in list(known):  # it may be a list, which is no key
        names = ", ".join(map(repr, known))
        raise UserError(f"{where}: {field} is {value!r}, and here can only be {names}")
    return known[value]


def unlike(config: Mapping[str, Any], only: Mapping[str, Any], where: Path) -> None:
    """UserError if a field is set to anything but what our arithmetic has."""
    for field, value in only.items():
        if field in config and config[field] != value:
            raise UserError(
                f"{where}: {field} is {config[field]!r}, and only {value!r} can be computed here"
            )


def size(config: Mapping[str, Any], field: str, where: Path) -> int:
    """A field that is a positive whole number; UserError if not."""
    value = config.get(field)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise UserError(f"{where}: {field} is {value!r}, and should be a whole number above 0")
    return value


def nonnegative(config: Mapping[str, Any], field: str, where: Path) -> float:
    """A field that is a finite number, 0 or above; UserError if not."""
    value = config.get(field)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise UserError(f"{where}: {field} is {value!r}, and should be a number, 0 or above")
    return value


def rate(config: Mapping[str, Any], field: str, where: Path) -> float:
    """A share that dropout leaves out; UserError if it is none."""
    value = nonnegative(config, field, where)
    if value >= 1:
        raise UserError(f"{where}: {field} is {value!r}, and should be below 1")
    return value


def check_layers(config: Mapping[str, Any], field: str, source: "Source", where: Path) -> int:
    """How many layers there are; UserError if they are more than the arrays of the weights."""
    layers, arrays = size(config, field, where), len(source.specs)
    if arrays and layers > arrays:
        raise UserError(f"{where}: {field} is {layers:,}, and the weights are {arrays:,} arrays")
    return layers


def only(ours: Any, fields: Mapping[str, Any], name: str = "model") -> None:
    """UserError if a field of the model, or the tokenizer, is not what theirs can only be."""
    for field, value in fields.items():
        if (own := getattr(ours, field)) != value:
            raise UserError(f"{name}.{field}={own!r}: theirs can only be {value!r}")
