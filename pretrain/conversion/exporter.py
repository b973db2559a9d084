"""A run's weights become a release that others read, one array at a time."""

import importlib
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pretrain.checkpoint import integrity
from pretrain.conversion import drafts, systems
from pretrain.conversion.importer import ORIGIN
from pretrain.conversion.name_map import Link, Shapes, Table, uncovered
from pretrain.formats import Spec
from pretrain.formats.base import writing
from pretrain.inference.text_format import format_name
from pretrain.inference.trained_run import Run, opened
from pretrain.runtime.errors import UserError
from pretrain.runtime.files import read_json

DTYPES = ("float32", "float16", "bfloat16")


def hand_out(
    workdir: Path,
    folder: Path,
    say: Callable[[str], None] = print,
    *,
    kind: str = "",
    dtype: str = "",
) -> None:
    """Writes the weights of the run in `workdir` as others read them, all or nothing.

    Args:
        kind: of release, one that its system has; "": Hugging Face's, or the only one.
        dtype: of the arrays; "": as they came in, or float32.

    Raises:
        UserError: there is no run, its system has no such kind, the run computes what theirs
            cannot, or `folder` is there already.
    """
    run = opened(workdir)
    system = system_of(run)
    kind = chosen_kind(system, run, kind)
    dtype = dtype or kept_dtype(workdir)
    shapes = saved(run)
    table = system.table(kind, shapes)
    if homeless := uncovered(table, shapes):
        raise UserError(f"such a release has no place for {', '.join(homeless)}")
    order = list(itertools.chain.from_iterable(names for _, names in parts(table)))
    theirs = table.specs(shapes, jnp.dtype(dtype))
    specs = {name: theirs[name] for name in order}
    with drafts.draft_folder(folder, say) as draft:
        with writing(folder):
            system.companions(run, draft, kind, dtype)
        form = system.KINDS[kind]
        writer = importlib.import_module(f"pretrain.formats.{form.format}").write
        file = form.weights.replace("*.", "model.").replace("*", "")
        place = draft / file if file else draft
        writer(place, specs, arrays(run, table, shapes, specs))
    numbers = sum(math.prod(spec.shape) for spec in specs.values())
    say(f"{len(specs)} arrays of {numbers:,} numbers, {dtype}, in {folder}")
    for name, why in table.absent.items():
        if name in shapes:
            say(f"left behind: {name}, {why}")
    for line in system.advice(run, kind) if hasattr(system, "advice") else []:
        say(line)


def system_of(run: Run) -> Any:
    """Whose releases have texts framed as this run has; UserError if nobody's."""
    name = format_name(run.config)
    for system in map(systems.system, systems.SYSTEMS):
        if name == system.TEXT_FORMAT:
            return system
    raise UserError(f"nobody else reads weights of text_format {name!r}")


def chosen_kind(system: Any, run: Run, kind: str) -> str:
    """The kind of release, if this run can be written so."""
    kinds = [name for name in system.KINDS if system.KINDS[name].out and system.writes(run, name)]
    if not kinds:
        raise UserError("no release is of a model like this run's")
    if kind and kind not in kinds:
        raise UserError(f"--kind={kind}: this run can be written as {', '.join(kinds)}")
    return kind or next((name for name in kinds if "hugging_face" in name), kinds[0])


def kept_dtype(workdir: Path) -> str:
    """That the weights came in, if they did."""
    path = workdir / ORIGIN
    origin = read_json(path) if path.exists() else {"dtype": "float32"}
    dtype = origin.get("dtype") if isinstance(origin, dict) else None
    if dtype not in DTYPES:
        raise UserError(f"{path}: dtype is {dtype!r}, not one of {', '.join(DTYPES)}: say --dtype")
    return dtype


def saved(run: Run) -> dict[str, tuple[int, ...]]:
    """Shapes of the run's parameters by name, as its newest readable checkpoint lists them."""
    folder = run.folder / "checkpoints"
    for step in integrity.steps(folder):
        try:
            leaves = integrity.read_record(folder / str(step))["leaves"]
        except integrity.DamagedError:
            continue
        return {
            name.removeprefix(f"{run.trained}/"): tuple(leaf["shape"])
            for name, leaf in leaves.items()
            if name.startswith(f"{run.trained}/")
        }
    raise UserError(f"there is no checkpoint in {folder} to take weights from")


def parts(table: Table) -> Iterator[tuple[list[str], list[str]]]:
    """Ours that must be read together, and theirs that come of these."""
    theirs, left = table.by_theirs(), dict(table.by_ours())
    while left:
        own: list[str] = [next(iter(left))]
        names: dict[str, None] = {}
        for ours in own:  # grows
            names |= {link.theirs: None for link in left.pop(ours)}
            also = (link.ours for name in names for link in theirs[name])
            own += [x for x in dict.fromkeys(also) if x in left and x not in own]
        yield own, list(names)


def arrays(
    run: Run, table: Table, shapes: Shapes, specs: Mapping[str, Spec]
) -> Iterator[tuple[str, np.ndarray]]:
    """Their arrays, made of a few of ours at a time."""
    links = table.by_theirs()
    for own, names in parts(table):
        ours = {name: read(run, name, shapes[name]) for name in own}
        for name in names:
            yield name, joined(name, specs[name], links[name], ours)
        del ours  # the next need the room


def joined(
    name: str, spec: Spec, links: Sequence[Link], ours: Mapping[str, np.ndarray]
) -> np.ndarray:
    """One array of theirs, of the parts of ours that it is.

    Raises:
        UserError: a number is too large for its type.
    """
    array = np.empty(spec.shape, spec.dtype)
    for link in links:
        part = ours[link.ours][link.at]
        with np.errstate(over="ignore"):  # seen below
            link.part(array, part.shape)[...] = part
    if not np.isfinite(array.astype(np.float32)).all():
        raise UserError(f"{name} does not fit in {array.dtype}: take another --dtype")
    return array


def read(run: Run, name: str, shape: tuple[int, ...]) -> np.ndarray:
    """One parameter, verified."""
    like = jax.ShapeDtypeStruct(
        shape, jnp.float32, sharding=jax.sharding.SingleDeviceSharding(jax.devices()[0])
    )
    found, _ = run.weights(integrity.nest({name: like}), name)
    return np.asarray(integrity.flatten(found)[name])
