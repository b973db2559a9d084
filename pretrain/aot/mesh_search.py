"""Searches meshes, remat policies and batch sizes on chips by compiling one after another."""

import dataclasses
import math
import time
from collections.abc import Callable, Iterator

MAX_TENSOR = 8  # chips over which one product is split: with more, its collectives dominate
BATCH_FACTORS = (1, 2, 4, 0.5, 0.25)  # of the recipe's batch size


@dataclasses.dataclass(frozen=True)
class Candidate:
    """A setting to compile; remat "" leaves the recipe's."""

    mesh: tuple[int, int, int]
    remat: str
    B: int


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The estimate of a candidate's step, or the reason that it has none.

    Attributes:
        seconds: the least time of a step; 0 if there is none.
        memory: bytes of a chip.
        rate: tokens per second and chip.
        share: the model's FLOPs as a share of the chip's peak.
        why: the reason that there is no step.
        is_too_large: whether that is memory.
    """

    candidate: Candidate
    seconds: float = 0.0
    memory: float = 0.0
    rate: float = 0.0
    share: float = 0.0
    why: str = ""
    is_too_large: bool = False


def list_candidates(config, chips: int) -> list[Candidate]:
    """Lists the candidates of a recipe, those most like the recipe first."""
    # Tensor parallelism splits heads, or an LSTM's units; whole ones only.
    heads = config.model.get("H") or config.model.get("U") or 1
    remats = list_remats(config)
    # The recipe's own size first: it is what the paper trained with.
    sizes = [int(config.batches.B * factor) for factor in BATCH_FACTORS]
    return [
        Candidate(mesh, remat, B)
        for B in sizes
        for mesh in iter_meshes(chips, heads)
        for remat in remats
        # As many rows on each chip; those of a tensor-parallel group share theirs.
        if B and B % (mesh[0] * mesh[1]) == 0
    ]


def list_remats(config) -> list[str]:
    return ["none", "dots", "full"] if "remat" in config.get("execution", {}) else [""]


def iter_meshes(chips: int, heads: int) -> Iterator[tuple[int, int, int]]:
    """Yields each (data, fsdp, tensor) that uses all chips, the least tensor-parallel first."""
    for tensor in range(1, min(MAX_TENSOR, chips) + 1):
        if chips % tensor == 0 and heads % tensor == 0:
            # Within a share of tensor parallelism, from fully sharded to data parallel.
            rest = chips // tensor
            for data in (n for n in range(1, rest + 1) if rest % n == 0):
                yield data, rest // data, tensor


def search(
    config,
    chips: int,
    minutes: float,
    say: Callable[[str], None],
    compile_candidate: Callable[[Candidate], Outcome],
) -> list[Outcome]:
    """Compiles one candidate after another until the time is over, and reports each to `say`."""
    end = time.monotonic() + 60 * minutes
    outcomes: list[Outcome] = []
    candidates = list_candidates(config, chips)
    for number, candidate in enumerate(candidates):
        left = f"{len(candidates) - number} of {len(candidates)} were not tried"
        if time.monotonic() > end:
            say(f"{minutes:g} minutes are over: {left}")
            break
        try:
            known = _refuse_known(candidate, outcomes)
            outcomes.append(known or compile_candidate(candidate))
        except KeyboardInterrupt:  # the table of what is known is still printed
            say(f"interrupted: {left}")
            break
        say(f"{number + 1}/{len(candidates)}  {format_row(outcomes[-1])}")
    return outcomes


def fit_rows(
    config,
    chips: int,
    minutes: float,
    say: Callable[[str], None],
    compile_candidate: Callable[[Candidate], Outcome],
) -> list[Outcome]:
    """Compiles twice or half the rows with each remat, until the most that fit are known."""
    end = time.monotonic() + 60 * minutes
    outcomes: list[Outcome] = []
    mesh = (config.mesh.data, config.mesh.fsdp, config.mesh.tensor)
    # A power of two of rows for each chip, the nearest below the recipe's.
    begin = chips * 2 ** int(math.log2(max(config.batches.B / chips, 1)))
    for remat in list_remats(config):
        B, fitted = begin, set[bool]()
        # Until one fits and twice as many do not.
        while len(fitted) < 2 and chips <= B and time.monotonic() < end:
            outcomes.append(compile_candidate(Candidate(mesh, remat, B)))
            say(format_row(outcomes[-1]))
            if outcomes[-1].why and not outcomes[-1].is_too_large:
                break
            fitted.add(not outcomes[-1].why)
            B = B // 2 if outcomes[-1].why else B * 2
    return outcomes


def _refuse_known(candidate: Candidate, outcomes: list[Outcome]) -> Outcome | None:
    # Where fewer rows did not fit with the same mesh and remat, nor will these: minutes are saved.
    setting = (candidate.mesh, candidate.remat)
    for x in outcomes:
        is_same = (x.candidate.mesh, x.candidate.remat) == setting
        if x.is_too_large and is_same and x.candidate.B <= candidate.B:
            return refuse_size(candidate, f"nor do {x.candidate.B} rows")
    return None


def refuse_size(candidate: Candidate, why: str) -> Outcome:
    """Returns the outcome of a candidate that exceeds the chip's memory."""
    return Outcome(candidate, why=f"does not fit: {why}", is_too_large=True)


HEAD = (
    f"{'data':>5}{'fsdp':>6}{'tensor':>8}  {'remat':<6}{'rows':>7}{'GiB':>8}{'ms':>11}"
    f"{'tokens/s':>13}{'of peak':>9}"
)


def format_table(outcomes: list[Outcome]) -> list[str]:
    """Returns a line per outcome: most tokens per second and chip first, refusals last."""
    return [HEAD, *map(format_row, sorted(outcomes, key=lambda x: -x.rate))]


def format_row(outcome: Outcome) -> str:
    candidate = outcome.candidate
    data, fsdp, tensor = candidate.mesh
    setting = f"{data:>5}{fsdp:>6}{tensor:>8}  {candidate.remat or '-':<6}{candidate.B:>7}"
    if outcome.why:
        return f"{setting}  {outcome.why}"
    return (
        f"{setting}{outcome.memory / 2**30:>8.2f}{outcome.seconds * 1e3:>11.3f}"
        f"{outcome.rate:>13,.0f}{outcome.share:>9.0%}"
    )
