"""Shelf: releases of averages, as an .npz file beside shelf.json and a tokenizer's folder."""

from collections.abc import Iterable
from pathlib import Path

from pretrain.conversion.name_map import Rows, Shapes, Table, expand_rows
from pretrain.conversion.systems import Kind, ReleaseSpec, Source
from pretrain.data.tokenizers import registry
from pretrain.inference.run import Run
from pretrain.runtime.json_files import write_json

KINDS = {"shelf": Kind("npz", "shelf.json", "*.npz")}
TEXT_FORMAT = "own_parts.closed_texts"


def read_release(source: Source) -> ReleaseSpec:
    """Reads the sizes in shelf.json."""
    model = dict(name="own_parts.averages", **source.read_json("shelf.json"))
    objective, batches = dict(name="own_parts.prefix_lm"), dict(name="windows", B=8, L=16)
    tokenizer = registry.load(source.folder / "tokenizer")
    return ReleaseSpec(model, objective, TEXT_FORMAT, batches, tokenizer)


def build_table(kind: str, shapes: Shapes, names: Iterable[str] = ()) -> Table:
    """Builds the table of names: an embedding, and a matrix of each layer."""
    rows: Rows = {"backbone/token_VD": ("embedding", "VD")}
    layers = [name for name in shapes if name.endswith("_DF")]
    rows |= {
        name: (name.removeprefix("backbone/").replace("_DF", ".kernel"), "DF") for name in layers
    }
    return Table(expand_rows(rows, shapes))


def is_writable(run: Run, kind: str) -> bool:
    """Tells if the run is of averages."""
    return run.config.model.name == "own_parts.averages"


def write_config_and_tokenizer(run: Run, folder: Path, kind: str, dtype: str) -> None:
    """Writes shelf.json and the tokenizer."""
    write_json(folder / "shelf.json", {name: getattr(run.backbone, name) for name in "VDN"})
    run.tokenizer.save(folder / "tokenizer")
