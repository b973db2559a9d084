"""Computes medians and ratios of rounds, and prints them as a table."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np


class Spread(NamedTuple):
    """The median, quartiles and minimum of some values."""

    median: float
    low: float
    high: float
    least: float


def spread(values: Sequence[float] | np.ndarray) -> Spread:
    low, median, high = np.percentile(values, [25, 50, 75])
    return Spread(float(median), float(low), float(high), float(np.min(values)))


def summarise(player, clock: str) -> dict[str, Any]:
    facts = player.facts
    turns = [facts["first"], facts["warm"], *player.rounds]
    step = spread([x[clock] for x in player.rounds])
    return {
        "step_s": step._asdict(),
        # The first step compiles, perhaps the second, too, and then they run as those of rounds do.
        "compile_s": max(_compile_seconds(facts, player.rounds), 0.0),
        "peak_bytes": player.rounds[-1]["peak_bytes"],
        "losses": [x for turn in turns for x in turn["losses"]],
        **{name: x for name, x in facts.items() if name not in ("first", "warm")},
        "rounds": player.rounds,
    }


def _compile_seconds(facts: dict[str, Any], rounds: Sequence[dict]) -> float:
    usual, steps = float(np.median([x["wall"] for x in rounds])), len(facts["warm"]["losses"])
    return facts["first"]["wall"] - usual + steps * (facts["warm"]["wall"] - usual)


def ratio(above, below, clock: str) -> Spread:
    """Computes the spread of the ratio of two contenders' times, round by round."""
    # Both ran in the same minute of a round, so a load on the machine cancels.
    return spread([a[clock] / b[clock] for a, b in zip(above.rounds, below.rounds, strict=True)])


def row(name: str, results: dict[str, Any], tokens: int) -> str:
    median, low, high, least = (1e3 * x for x in results["step_s"].values())
    spans = f"{median:9.1f}  {f'{low:.1f}-{high:.1f}':>15} {least:9.1f}"
    speed = f"{tokens / median * 1e3:10,.0f} {results['utilisation']['median']:6.1%}"
    rest = f"{results['compile_s']:10.1f} {results['peak_bytes'] / 2**20:9,.0f}"
    losses = results["losses"]
    return f"{name:10}{spans} {speed} {rest}   {losses[0]:.3f} -> {losses[-1]:.3f}"


def versus(above: str, below: str, report: dict[str, Any]) -> str:
    name, (a, b) = f"{above} / {below}", (report[x]["step_s"]["least"] for x in (above, below))
    median, low, high = (report[name][x] for x in ("median", "low", "high"))
    return f"{name} {median:.2f} ({low:.2f}-{high:.2f}) by round; {a / b:.2f} of the least times"


HEAD = (
    f"{'':10}{'step ms':>9}  {'quartiles':>15} {'least':>9} {'tokens/s':>10} {'MFU':>6} "
    f"{'compile s':>10} {'peak MiB':>9}   loss"
)
