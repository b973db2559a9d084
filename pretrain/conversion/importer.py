"""Published weights become a run, one array at a time.

What a release is called and how it is arranged is in `pretrain.conversion.systems`, how its files
are read in `pretrain.formats`; here every array is accounted for and moved.
"""

import hashlib
import importlib
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

import modules
from pretrain.checkpoint import integrity, streaming_writer
from pretrain.conversion import drafts, systems
from pretrain.conversion.name_map import Account, Link, Shapes, account
from pretrain.conversion.systems import Described, Source
from pretrain.formats import Arrays, Spec
from pretrain.formats.base import reading, writing
from pretrain.inference.text_format import load_format
from pretrain.inference.trained_run import Run, drawn, opened
from pretrain.runtime import run_config
from pretrain.runtime.errors import UserError
from pretrain.runtime.files import read_json, write_json

ORIGIN = "origin.json"
PARTS = ("checkpoints", "tokenizer", ORIGIN, "config.json")  # the last makes it a run


def found(path: Path, kind: str = "") -> tuple[Any, str]:
    """The system of a folder of published weights, and the kind of release.

    Raises:
        UserError: it is none that is known, or could be several.
    """
    if not os.path.exists(path):
        raise UserError(f"{path} does not exist")
    folder = path if path.is_dir() else path.parent
    with reading(folder):
        os.listdir(folder)  # patterns are silent about a folder that cannot be read
    fits = [
        (system, name)
        for system in map(systems.system, systems.SYSTEMS)
        for name, each in system.KINDS.items()
        if (not kind or name == kind) and _is(folder, each)
    ]
    if len(fits) == 1:
        return fits[0]
    if fits:
        names = ", ".join(sorted({name for _, name in fits}))
        raise UserError(f"{folder} could be of several kinds: name one with --kind: {names}")
    raise UserError(f"{folder} holds no weights of a kind that is known: see the README")


def _is(folder: Path, kind: systems.Kind) -> bool:
    known = [path for path in folder.glob(kind.knows) if path.is_file()]
    if not known or (kind.weights and not any(folder.glob(kind.weights))):
        return False
    if not kind.model_type:
        return True
    config = read_json(known[0])
    if not isinstance(config, dict):
        raise UserError(f"{known[0]} cannot be read as a configuration")
    return config.get("model_type") == kind.model_type


def bring(
    path: Path,
    workdir: Path,
    say: Callable[[str], None] = print,
    *,
    kind: str = "",
    ignore: str = "",
    check: bool = False,
    **options: Any,
) -> None:
    """Makes a run in `workdir` of a folder of published weights, all or nothing.

    Args:
        kind: of release; "": as the files say.
        ignore: a pattern of names of arrays to leave out.
        check: compare with what the release says that it computes, if it does.
        options: see `systems.Source`.

    Raises:
        UserError: the folder is not what it should be, or `workdir` holds a run already.
    """
    system, kind = found(path, kind)
    drafts.check_vacant(workdir, PARTS[-1:])
    with _arrays(path, system.KINDS[kind]) as arrays:
        folder = path if path.is_dir() else path.parent
        source = Source(folder, kind, arrays.specs, options)
        described = system.described(source)
        for note in described.notes:
            say(note)
        shapes = _shapes(described)
        table = system.table(kind, shapes, list(arrays.specs))
        settled = account(table, shapes, arrays.specs, ignore, arrays.others)
        _check_copies(arrays, settled)
        origin = _origin(system, source, settled, described)
        with drafts.draft_run(workdir, PARTS, say) as draft:
            _write(draft, arrays, settled, shapes)
            with writing(workdir):
                described.tokenizer.save(draft / "tokenizer")
                write_json(draft / ORIGIN, origin)
                run_config.write_config(draft, _recipe(described, workdir))
            checked = _checked(system, opened(draft), source) if check else []
    for line in [*report(settled, arrays.specs, shapes, described.missing), *checked]:
        say(line)


def _arrays(path: Path, kind: systems.Kind) -> Arrays:
    where = path
    if path.is_dir() and kind.weights and kind.format != "tensorflow":
        where = sorted(path.glob(kind.weights))[0]
    return importlib.import_module(f"pretrain.formats.{kind.format}").open_arrays(where)


def _shapes(described: Described) -> dict[str, tuple[int, ...]]:
    try:
        backbone = modules.build(**described.model)
    except (TypeError, ValueError) as error:
        raise UserError(f"its configuration makes no model of ours: {error}") from error
    leaves = integrity.flatten({"backbone": jax.eval_shape(lambda: drawn(backbone))})
    return {name: x.shape for name, x in leaves.items()} | described.heads


def _check_copies(arrays: Arrays, settled: Account) -> None:
    """UserError if arrays that are tied differ."""
    for copy, name in settled.copies.items():
        if not np.array_equal(arrays.read(copy), arrays.read(name)):
            raise UserError(f"{copy} should repeat {name}, as the two are tied, and does not")


def _write(draft: Path, arrays: Arrays, settled: Account, shapes: Shapes) -> None:
    """The checkpoint, as of step 0."""
    leaves = (
        (f"params/{name}", assembled(arrays, settled.mapped.get(name, []), shape))
        for name, shape in shapes.items()
    )
    try:
        streaming_writer.write(draft, 0, leaves)
    except FloatingPointError as error:
        raise UserError(f"these weights are broken: {error}") from error


def assembled(arrays: Arrays, links: list[Link], shape: tuple[int, ...]) -> np.ndarray:
    """One parameter of ours, float32, of the arrays that its parts are in; of none: zeros."""
    whole = aligned(shape)
    whole[...] = 0
    for link in links:
        whole[link.at] = link.part(arrays.read(link.theirs), shape[len(link.at) :])
    return whole


def aligned(shape: tuple[int, ...]) -> np.ndarray:
    """Float32 in memory where JAX can use it as it is, rather than copy it."""
    size = 4 * math.prod(shape)
    space = np.empty(size + 64, np.uint8)
    start = -space.ctypes.data % 64
    return space[start : start + size].view(np.float32).reshape(shape)


def _recipe(described: Described, workdir: Path) -> dict[str, Any]:
    """What `config.json` keeps of a run, and evaluation and fine-tuning read."""
    return dict(
        seed=0,
        mesh=dict(data=-1, fsdp=1, tensor=1),
        train=dict(average=0.0),
        corpus=dict(tokens=dict(name="saved", folder=str(workdir / "tokenizer"))),
        batches=described.batches,
        model=described.model,
        objective=described.objective,
        text_format=described.text_format,
        execution=dict(loss_chunks=20),  # ELMo's published vocabulary has 793,471 words
    )


def _origin(system: Any, source: Source, settled: Account, described: Described) -> dict[str, Any]:
    """Where the weights are from, in full, and what of our arithmetic is theirs."""
    types = {str(source.specs[link.theirs].dtype) for x in settled.mapped.values() for link in x}
    return dict(
        system=system.__name__.rpartition(".")[2],
        kind=source.kind,
        folder=str(source.folder.resolve()),
        files={path.name: _digest(path) for path in _files(source.folder)},
        options={name: value for name, value in source.options.items() if value is not None},
        switches=described.model | {"padding": load_format(described.text_format).padding},
        dtype=types.pop() if len(types) == 1 else "float32",
        ignored=settled.ignored,
        copies=settled.copies,
        absent=settled.absent,
    )


def _files(folder: Path) -> list[Path]:
    with reading(folder):
        return [path for path in sorted(folder.iterdir()) if path.is_file()]


def _digest(path: Path) -> str:
    with reading(path), path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def report(
    settled: Account, specs: Mapping[str, Spec], shapes: Shapes, missing: Sequence[str] = ()
) -> Iterator[str]:
    """A line for each parameter and what became it, for what was left out and what is missing."""
    for name, links in settled.mapped.items():
        theirs = list(dict.fromkeys(link.theirs for link in links))
        last = f" ... {theirs[-1]}" if len(theirs) > 1 else ""
        yield f"{name} {list(shapes[name])} <- {theirs[0]}{last}"
    for why, names in settled.ignored.items():
        last = f" ... {names[-1]}" if len(names) > 1 else ""
        yield f"ignored, {why}: {names[0]}{last} ({len(names)})"
    for copy, name in settled.copies.items():
        yield f"ignored, a copy of {name}: {copy}"
    yield from (f"missing, and not in the run: {part}" for part in missing)
    yield from (f"missing, and zeros in the run: {x}, {why}" for x, why in settled.absent.items())
    used = {link.theirs for links in settled.mapped.values() for link in links}
    left = sum(map(len, settled.ignored.values())) + len(settled.copies)
    numbers = sum(int(np.prod(shape)) for shape in shapes.values())
    yield (
        f"{len(used)} arrays became {len(shapes)} parameters of {numbers:,} numbers; {left} are "
        f"left out, {len(specs) - len(used) - left} unaccounted for"
    )


def _checked(system: Any, run: Run, source: Source) -> list[str]:
    """What to say of the comparison with what the release says that it computes.

    Raises:
        UserError: the run computes something else.
    """
    checks = system.checked(run, source) if hasattr(system, "checked") else {}
    for name, (off, most) in checks.items():
        if not off <= most:
            raise UserError(
                f"{name} is not what the release says that it computes: it differs by {off:.1e}, "
                f"of at most {most:.0e}"
            )
    lines = [
        f"check: {x} differs by {off:.1e}, of at most {most:.0e}"
        for x, (off, most) in checks.items()
    ]
    return lines or ["check: the release does not say what it computes"]
