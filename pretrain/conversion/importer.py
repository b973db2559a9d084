"""Published weights become a run, one array at a time."""

import importlib
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

import modules
from modules.backbones import init_params
from modules.heads import language_model
from pretrain.checkpoint import named_leaves, streaming_writer
from pretrain.conversion import drafts, systems
from pretrain.conversion.model_card import read_license
from pretrain.conversion.name_map import Link, Reconciliation, Shapes, reconcile
from pretrain.conversion.systems import ORIGIN, ReleaseSpec, Source
from pretrain.formats import Arrays, Spec
from pretrain.formats.base import explain_read_errors, explain_write_errors
from pretrain.inference.run import Run
from pretrain.inference.text_format import load_format
from pretrain.inference.trained_run import load_run
from pretrain.runtime import run_config
from pretrain.runtime.errors import UserError
from pretrain.runtime.files import hash_file
from pretrain.runtime.json_files import read_json, write_json

MISSING = {"albert": "whose layers share their weights, as no backbone's here do"}
PARTS = ("checkpoints", "tokenizer", ORIGIN, "config.json")  # the last makes it a run


def detect_release(path: Path, kind: str = "", system: str = "") -> tuple[str, str]:
    """Detects the system of a folder of published weights, and the kind of release.

    Args:
        kind, system: names that settle it where several fit; "": as the files say.

    Raises:
        UserError: it is none that is known, or could be several.
    """
    if not os.path.exists(path):
        raise UserError(f"{path} does not exist; a model of the Hub is named hub:org/name")
    # A configuration lies beside a file of weights.
    folder = path if path.is_dir() else path.parent
    with explain_read_errors(folder):
        os.listdir(folder)  # patterns are silent about a folder that cannot be read
    fits = [
        (system_name, kind_name)
        for system_name, module in systems.list_systems(system).items()
        for kind_name, files in module.KINDS.items()
        if (not kind or kind_name == kind) and _is_kind(folder, files)
    ]
    if len(fits) == 1:
        return fits[0]
    if not fits:
        raise UserError(f"{folder} holds no weights of a kind that is known{name_model(folder)}")
    # The one name that settles it: of a kind where the system is clear, else of the system.
    option = "--kind" if len({system_name for system_name, _ in fits}) == 1 else "--system"
    names = ", ".join(sorted({fit[option == "--kind"] for fit in fits}))
    what = "kinds" if option == "--kind" else "systems"
    raise UserError(f"{folder} could be of several {what}: name one with {option}: {names}")


def name_model(folder: Path) -> str:
    """Names what a folder's config.json says that it is, and why it is not known; "": nothing."""
    path = folder / "config.json"
    config = read_json(path) if path.exists() else {}
    if not isinstance(config, dict) or "model_type" not in config:
        return ": see the README"
    name = config["model_type"]
    why = f", {MISSING[name]}" if isinstance(name, str) and name in MISSING else ""
    kinds = [x for module in systems.list_systems().values() for x in module.KINDS.values()]
    known = ", ".join(sorted({kind.model_type for kind in kinds} - {""}))
    return f": its model_type is {name!r}{why}; there are {known}"


def _is_kind(folder: Path, kind: systems.Kind) -> bool:
    markers = [path for path in folder.glob(kind.marker_file) if path.is_file()]
    if not markers or (kind.weights and not any(folder.glob(kind.weights))):
        return False
    # Every model of Hugging Face's has a config.json: what it says inside tells them apart.
    if not kind.model_type:
        return True
    config = read_json(markers[0])
    if not isinstance(config, dict):
        raise UserError(f"{markers[0]} cannot be read as a configuration")
    return config.get("model_type") == kind.model_type


def import_weights(
    path: Path,
    workdir: Path,
    say: Callable[[str], None] = print,
    *,
    kind: str = "",
    system: str = "",
    ignore: str = "",
    check: bool = False,
    address: str = "",
    **options: Any,
) -> None:
    """Imports into a run in `workdir` a folder of published weights, all or nothing.

    Args:
        kind: of release; "": as the files say.
        system: a file of `pretrain.conversion.systems`, or a module of your own; "": as the files
            say.
        ignore: a pattern of names of arrays to leave out.
        check: compare with what the release says that it computes, if it does.
        address: where the folder was fetched from, as "org/name@commit"; "": it is the user's.
        options: see `systems.Source`.

    Raises:
        UserError: the folder is not what it should be, or `workdir` holds a run already.
    """
    system, kind = detect_release(path, kind, system)
    module = systems.load_system(system)
    # Before gigabytes are read for a folder that will not take them.
    drafts.check_vacant(workdir, PARTS[-1:])
    with _open_arrays(path, module.KINDS[kind]) as arrays:
        folder = path if path.is_dir() else path.parent
        source = Source(folder, kind, arrays.specs, options)
        release = module.read_release(source)
        for note in release.notes:
            say(note)
        shapes = _read_shapes(release)
        table = module.build_table(kind, shapes, list(arrays.specs))
        reconciliation = reconcile(table, shapes, arrays.specs, ignore, arrays.others)
        # Before the draft: a broken tie is told without a byte written.
        _check_copies(arrays, reconciliation)
        origin = _describe_origin(system, source, reconciliation, release)
        origin |= dict(address=address, license=read_license(folder))
        with drafts.draft_run(workdir, PARTS, say) as draft:
            _write(draft, arrays, reconciliation, shapes)
            with explain_write_errors(workdir):
                release.tokenizer.save(draft / "tokenizer")
                write_json(draft / ORIGIN, origin)
                run_config.write_config(draft, _build_config(release, workdir))
            lines = _compare_outputs(module, load_run(draft), source) if check else []
    for line in [*describe_mapping(reconciliation, arrays.specs, shapes, release.missing), *lines]:
        say(line)


def _open_arrays(path: Path, kind: systems.Kind) -> Arrays:
    where = path
    # TensorFlow's reader finds its index itself; without a pattern the folder is the release.
    if path.is_dir() and kind.weights and kind.format != "tensorflow":
        where = sorted(path.glob(kind.weights))[0]
    return importlib.import_module(f"pretrain.formats.{kind.format}").open_arrays(where)


def _read_shapes(release: ReleaseSpec) -> dict[str, tuple[int, ...]]:
    try:
        backbone = modules.build(**release.model)
        head = language_model.build(backbone, **release.head)
    except (TypeError, ValueError) as error:
        raise UserError(f"its configuration makes no model of ours: {error}") from error
    # Shapes alone: the machine may have room for the weights once, and not twice.
    parts = {
        "backbone": jax.eval_shape(lambda: init_params(backbone)),
        "head": language_model.param_shapes(head),
    }
    leaves = named_leaves.flatten(parts)
    return {name: x.shape for name, x in leaves.items()} | release.heads


def _check_copies(arrays: Arrays, reconciliation: Reconciliation) -> None:
    for copy, name in reconciliation.copies.items():
        if not np.array_equal(arrays.read(copy), arrays.read(name)):
            raise UserError(f"{copy} should repeat {name}, as the two are tied, and does not")


def _write(draft: Path, arrays: Arrays, reconciliation: Reconciliation, shapes: Shapes) -> None:
    # A generator: one parameter at a time is in memory.
    leaves = (
        (f"params/{name}", assemble(arrays, reconciliation.mapped.get(name, []), shape))
        for name, shape in shapes.items()
    )
    try:
        streaming_writer.write(draft, 0, leaves)
    except FloatingPointError as error:
        raise UserError(f"these weights are broken: {error}") from error


def assemble(arrays: Arrays, links: list[Link], shape: tuple[int, ...]) -> np.ndarray:
    """Assembles a parameter, float32, of the arrays that its parts are in; of none: zeros."""
    whole = allocate_aligned(shape)
    # Rows that no array has become zeros, as `Table.absent` says to the user.
    whole[...] = 0
    for link in links:
        whole[link.at] = link.read(arrays.read(link.theirs), shape[len(link.at) :])
    return whole


def allocate_aligned(shape: tuple[int, ...]) -> np.ndarray:
    """Allocates float32 where JAX can use it as it is, rather than copy it."""
    size = 4 * math.prod(shape)
    # JAX takes a buffer over only at a multiple of 64 bytes, and NumPy promises less.
    space = np.empty(size + 64, np.uint8)
    start = -space.ctypes.data % 64
    return space[start : start + size].view(np.float32).reshape(shape)


def _build_config(release: ReleaseSpec, workdir: Path) -> dict[str, Any]:
    """Builds the config.json of the run, which evaluation and fine-tuning read."""
    return dict(
        seed=0,
        mesh=dict(data=-1, fsdp=1, tensor=1),
        train=dict(average=0.0),
        corpus=dict(tokens=dict(name="saved", folder=str(workdir / "tokenizer"))),
        batches=release.batches,
        model=release.model,
        head=release.head,
        objective=release.objective,
        text_format=release.text_format,
        execution=dict(loss_chunks=20),  # ELMo's published vocabulary has 793,471 words
    )


def _describe_origin(
    system: str, source: Source, reconciliation: Reconciliation, release: ReleaseSpec
) -> dict[str, Any]:
    types = {
        str(source.specs[link.theirs].dtype)
        for links in reconciliation.mapped.values()
        for link in links
    }
    return dict(
        system=system,
        kind=source.kind,
        folder=str(source.folder.resolve()),
        # Hashes tell which download a run was made of, for as long as that is there.
        files={path.name: _hash_file(path) for path in _list_files(source.folder)},
        options={name: value for name, value in source.options.items() if value is not None},
        switches=release.model | {"padding": load_format(release.text_format).padding},
        # In what an export writes; of several types in the one that holds all.
        dtype=types.pop() if len(types) == 1 else "float32",
        ignored=reconciliation.ignored,
        copies=reconciliation.copies,
        absent=reconciliation.absent,
    )


def _list_files(folder: Path) -> list[Path]:
    with explain_read_errors(folder):
        return [path for path in sorted(folder.iterdir()) if path.is_file()]


def _hash_file(path: Path) -> str:
    with explain_read_errors(path):
        return hash_file(path)


def describe_mapping(
    reconciliation: Reconciliation,
    specs: Mapping[str, Spec],
    shapes: Shapes,
    missing: Sequence[str] = (),
) -> Iterator[str]:
    """Yields a line for each parameter and what became it, what was left out, what is missing."""
    for name, links in reconciliation.mapped.items():
        theirs = list(dict.fromkeys(link.theirs for link in links))
        last = f" ... {theirs[-1]}" if len(theirs) > 1 else ""
        yield f"{name} {list(shapes[name])} <- {theirs[0]}{last}"
    for why, names in reconciliation.ignored.items():
        last = f" ... {names[-1]}" if len(names) > 1 else ""
        yield f"ignored, {why}: {names[0]}{last} ({len(names)})"
    for copy, name in reconciliation.copies.items():
        yield f"ignored, a copy of {name}: {copy}"
    yield from (f"missing, and not in the run: {part}" for part in missing)
    yield from (
        f"missing, and zeros in the run: {x}, {why}" for x, why in reconciliation.absent.items()
    )
    used = {link.theirs for links in reconciliation.mapped.values() for link in links}
    left = sum(map(len, reconciliation.ignored.values())) + len(reconciliation.copies)
    numbers = sum(int(np.prod(shape)) for shape in shapes.values())
    yield (
        f"{len(used)} arrays became {len(shapes)} parameters of {numbers:,} numbers; {left} are "
        f"left out, {len(specs) - len(used) - left} unaccounted for"
    )


def _compare_outputs(module: systems.System, run: Run, source: Source) -> list[str]:
    """Compares the run's outputs with what the release says; UserError where they are others."""
    compare = getattr(module, "compare_outputs", None)
    checks = compare(run, source) if compare else {}
    for name, (off, most) in checks.items():
        if not off <= most:  # NaN, too
            raise UserError(
                f"{name} is not what the release says that it computes: it differs by {off:.1e}, "
                f"of at most {most:.0e}"
            )
    lines = [
        f"check: {x} differs by {off:.1e}, of at most {most:.0e}"
        for x, (off, most) in checks.items()
    ]
    return lines or ["check: the release does not say what it computes"]
