"""Published weights: one file per system says how its releases name and arrange what ours do.

Adding a system is one file here, or a module of your own on PYTHONPATH, that keeps the contract
`System`; several may frame texts alike, as BERT and RoBERTa do.  It holds no arithmetic: reading
files is `pretrain.formats`, moving arrays is `pretrain.conversion.importer` and `exporter`.
"""

import dataclasses
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol, cast

from modules import plugins
from pretrain.conversion.name_map import Shapes, Table
from pretrain.data.tokenizers import Tokenizer
from pretrain.formats import Spec
from pretrain.inference.run import Run
from pretrain.runtime.errors import UserError
from pretrain.runtime.json_files import read_json

ORIGIN = "origin.json"  # beside a run's config.json: the release that it was imported from


def read_origin(workdir: Path) -> dict[str, Any]:
    """Reads where a run's weights were imported from; {}: no file says."""
    path = workdir / ORIGIN
    origin = read_json(path) if path.exists() else {}
    return origin if isinstance(origin, dict) else {}


@dataclasses.dataclass(frozen=True)
class Kind:
    """A kind of release.

    Attributes:
        format: a module of `pretrain.formats`.
        marker_file: a file of this name pattern tells that a folder is of this kind.
        weights: where the weights are in the folder; "": the folder itself says.
        model_type: what Hugging Face's config.json calls the system.
        writable: ours are written so, too.
    """

    format: str
    marker_file: str
    weights: str = ""
    model_type: str = ""
    writable: bool = True


@dataclasses.dataclass(frozen=True)
class Source:
    """A release: its folder, its kind, and the arrays there are.

    Attributes:
        options: "lower": text is lower-cased; "vocabulary": a folder with other tokenizer files.
    """

    folder: Path
    kind: str
    specs: Mapping[str, Spec]
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def read_json(self, name: str) -> dict[str, Any]:
        """Reads a JSON file of the folder.

        Raises:
            UserError: it is missing, or no object.
        """
        content = read_json(self.find_file(name))
        if not isinstance(content, dict):
            raise UserError(f"{self.folder / name}: is no JSON object")
        return content

    def find_file(self, *names: str) -> Path:
        """Finds the first of these files, named by patterns, that is there.

        Raises:
            UserError: none is.
        """
        for name in names:
            if paths := sorted(self.folder.glob(name)):
                return paths[0]
        raise UserError(f"{self.folder} has no {' or '.join(names)}")

    def has(self, *names: str) -> bool:
        return any(any(self.folder.glob(name)) for name in names)

    def with_tokenizer_folder(self) -> "Source":
        """Returns the source of the tokenizer's files: this one, or the option's folder."""
        given = self.options.get("vocabulary")
        return dataclasses.replace(self, folder=Path(given).expanduser()) if given else self


@dataclasses.dataclass(frozen=True)
class ReleaseSpec:
    """A release in our words.

    Attributes:
        objective, batches: sections of a recipe, with every value that its arithmetic needs.
        model: the section `model`, with the name of the module.
        text_format: the system's `TEXT_FORMAT`.
        tokenizer: of as many pieces as the embedding has rows.
        head: the section `head`.
        heads: shapes of the objective's own parameters, beside "backbone" and "head".
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
    head: dict[str, Any] = dataclasses.field(default_factory=dict)


class System(Protocol):
    """A file of this folder.

    It may also define `compare_outputs(run, source) -> {name: (difference, most allowed)}`, where
    releases say what they compute, `advise(run, kind) -> [line]`, for whoever loads what was
    written, `note_tokenizer(run, kind) -> [line]`, where text is cut otherwise there, `HEADS`, the
    classes that compute heads of fine-tuned runs, see `pretrain.conversion.task_heads`, and
    `write_frame(run, folder)`, which has their tokenizer frame rows as a task does.

    Attributes:
        KINDS: the kinds of releases that the system is known in, by name.
        TEXT_FORMAT: how it frames texts, a file of `pretrain.inference.text_formats`.
    """

    KINDS: dict[str, Kind]
    TEXT_FORMAT: str

    def read_release(self, source: Source) -> ReleaseSpec:
        """Reads what a release is, by its configuration and the arrays that are there.

        Raises:
            UserError: it is incomplete, or computes what we do not.
        """
        ...

    def build_table(self, kind: str, shapes: Shapes, names: Iterable[str] = ()) -> Table:
        """Builds the table of their arrays and ours.

        Args:
            shapes: of our parameters.
            names: the arrays of a release that is read; none: one is to be written.
        """
        ...

    def is_writable(self, run: Run, kind: str) -> bool:
        """Tells if the run's model is one that this kind of release is of."""
        ...

    def write_config_and_tokenizer(self, run: Run, folder: Path, kind: str, dtype: str) -> None:
        """Writes all of a release but its weights.

        Raises:
            UserError: the run computes what theirs cannot.
        """
        ...


def load_system(name: str) -> System:
    """Loads a system: a file of this folder, or a module of your own.

    Raises:
        UserError: there is none of that name.
    """
    try:
        return cast(System, plugins.load(__name__, name, "KINDS"))
    except plugins.UnknownNameError as error:
        raise UserError(f"--system: {error}") from error


def list_systems(name: str = "") -> dict[str, System]:
    """Loads every file of this folder that is a system, by name; or only the one that is named."""
    names = [name] if name else plugins.names(__name__, "KINDS")
    return {name: load_system(name) for name in names}
