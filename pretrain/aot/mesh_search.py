"""Meshes, remat and batch sizes tried one after another on a slice, the quickest found first."""

import dataclasses
import re
import time
from collections.abc import Callable, Iterator

from pretrain.aot import compiled_step, roofline
from pretrain.aot.tpu_specs import Slice
from pretrain.distributed.sharding import AXES
from pretrain.runtime.errors import UserError

TENSOR = 8  # chips that one product is split over, at most
BATCHES = (1, 2, 4, 0.5, 0.25)  # times the recipe's


@dataclasses.dataclass(frozen=True)
class Choice:
    """What a compilation is of, besides the recipe; remat "" leaves it as it is."""

    mesh: tuple[int, int, int]
    remat: str
    B: int


@dataclasses.dataclass(frozen=True)
class Found:
    """What became of a choice.

    Attributes:
        seconds: a step takes at least; 0 where there is none.
        memory: bytes of a chip.
        rate: tokens per second of a chip.
        share: of the chip's peak, that is the model's work.
        why: there is no step.
        large: because it does not fit.
    """

    choice: Choice
    seconds: float = 0.0
    memory: float = 0.0
    rate: float = 0.0
    share: float = 0.0
    why: str = ""
    large: bool = False


def choices(config, chips: int) -> list[Choice]:
    """All to try, those first that are most like the recipe."""
    heads = config.model.get("H") or config.model.get("U") or 1
    remats = [""] if "remat" not in config.model else ["none", "dots", "full"]
    sizes = [int(config.batches.B * by) for by in BATCHES]
    return [
        Choice(mesh, remat, B)
        for B in sizes
        for mesh in meshes(chips, heads)
        for remat in remats
        if B % chips == 0
    ]


def meshes(chips: int, heads: int) -> Iterator[tuple[int, int, int]]:
    """(data, fsdp, tensor) that use all chips; those that split least products first."""
    for tensor in range(1, min(TENSOR, chips) + 1):
        if chips % tensor == 0 and heads % tensor == 0:
            rest = chips // tensor
            for data in (n for n in range(1, rest + 1) if rest % n == 0):
                yield data, rest // data, tensor


def tried(config, place: Slice, minutes: float, say: Callable[[str], None]) -> list[Found]:
    """Every choice compiled, until the time is over; `say` hears of each."""
    end = time.monotonic() + 60 * minutes
    found: list[Found] = []
    todo = choices(config, len(place.devices))
    for number, choice in enumerate(todo):
        if time.monotonic() > end:
            say(f"{minutes:g} minutes are over: {len(todo) - number} of {len(todo)} were not tried")
            break
        try:
            found.append(_hopeless(choice, found) or one(config, place, choice))
        except KeyboardInterrupt:
            say(f"interrupted: {len(todo) - number} of {len(todo)} were not tried")
            break
        say(f"{number + 1}/{len(todo)}  {line(found[-1])}")
    return found


def _hopeless(choice: Choice, found: list[Found]) -> Found | None:
    """What fails for being too large fails when it is larger."""
    same = [
        x
        for x in found
        if x.large
        and (x.choice.mesh, x.choice.remat) == (choice.mesh, choice.remat)
        and x.choice.B <= choice.B
    ]
    return _large(choice, f"nor do {same[0].choice.B} rows") if same else None


def _large(choice: Choice, why: str) -> Found:
    return Found(choice, why=f"does not fit: {why}", large=True)


def one(config, place: Slice, choice: Choice) -> Found:
    """One choice, of the longest rows that the recipe has."""
    config = config.copy_and_resolve_references()
    config.mesh.update(dict(zip(AXES, choice.mesh, strict=True)))
    config.batches.B = choice.B
    if choice.remat:
        config.model.remat = choice.remat
    try:
        steps = compiled_step.steps(config, place)
        if (size := compiled_step.state_bytes(steps)) > place.chip.memory:
            return _large(choice, f"the state alone takes {size / 2**30:.0f} GiB")
        step = compiled_step.compiled(steps, compiled_step.rows(config)[-1])
    except UserError as error:
        return Found(choice, why=str(error))
    if step.refusal:
        needed = re.search(r"\(([\d.]+\w)\) exceeds", step.refusal)
        return _large(choice, f"it takes {needed[1]}" if needed else step.refusal)
    work = roofline.work(step.program, place, list(steps.layout.mesh.devices.flat))
    tokens = step.data.B * step.data.L / steps.layout.mesh.size
    share = step.flops / (work.seconds * place.chip.peak)
    return Found(choice, work.seconds, sum(step.memory.values()), tokens / work.seconds, share)


HEAD = (
    f"{'data':>5}{'fsdp':>6}{'tensor':>8}  {'remat':<6}{'rows':>7}{'GiB':>8}{'ms':>11}"
    f"{'tokens/s':>13}{'of peak':>9}"
)


def table(found: list[Found]) -> list[str]:
    """Lines, the most tokens per second and chip first, then what there is no step of."""
    return [HEAD, *map(line, sorted(found, key=lambda x: -x.rate))]


def line(found: Found) -> str:
    """One row of the table."""
    data, fsdp, tensor = found.choice.mesh
    begin = f"{data:>5}{fsdp:>6}{tensor:>8}  {found.choice.remat or '-':<6}{found.choice.B:>7}"
    if found.why:
        return f"{begin}  {found.why}"
    return (
        f"{begin}{found.memory / 2**30:>8.2f}{found.seconds * 1e3:>11.3f}{found.rate:>13,.0f}"
        f"{found.share:>9.0%}"
    )
