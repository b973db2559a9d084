"""Draws curves of runs: a metric by steps, tokens, seconds or operations."""

import itertools
import pathlib
import statistics
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from pretrain.formats.base import explain_write_errors
from pretrain.runtime.errors import UserError
from pretrain.runtime.run_config import flatten, read_config
from pretrain.training.reports import metrics_file
from pretrain.training.reports.results import group_recipes, list_jobs

AXES = {  # keys of a line of metrics: what they count
    "step": "steps",
    "tokens": "tokens trained on",
    "seconds": "seconds of training",
    "flops": "floating-point operations of the model",
}
FEW = 6  # curves that leave room for their legend between them
SAME_GUESS = 0.02  # of entropies: a share by which lines would lie upon one another


class Curve(NamedTuple):
    """Points of a metric, of a run or the mean of several.

    Attributes:
        low, high: the mean less and plus a standard deviation; None: of one run.
    """

    x: list[float]
    y: list[float]
    low: list[float] | None = None
    high: list[float] | None = None


def draw_curves(
    runs: Sequence[Any], out: Any, metric: str = "loss", x: str = "step", band: bool = False
) -> None:
    """Draws a metric of every run: lines are training, dots held out, dashes a constant guess.

    Args:
        runs: workdirs with a metrics.jsonl, or folders of runs for each seed.
        out: the picture to write, a PNG unless its ending says otherwise; its folder exists.
        metric: name of a number, as "loss", "accuracy" or "dev/f1"; those of all held-out texts
            are drawn beside that of training.
        x: of `AXES`.
        band: runs that differ in nothing but their seed are one curve, their mean, in a band of a
            standard deviation to either side.

    Raises:
        UserError: a run has written no metrics yet, or none such, or `out` cannot be written.
    """
    import matplotlib  # slow, and few need it

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    _check_out(pathlib.Path(out))
    lines = {job: read_run(job) for run in runs for job in list_jobs(pathlib.Path(run))}
    # A run whose steps were all skipped has no loss, and still a picture.
    if metric != "loss" and not any(find_names(x, metric) for x in lines.values()):
        raise UserError(f"--metric={metric}: there are {', '.join(list_metrics(lines.values()))}")
    groups = group_seeds(list(lines)) if band else {name_run(job, lines): [job] for job in lines}
    figure, axes = plt.subplots(figsize=(9, 5.5), layout="constrained")
    for number, (label, jobs) in enumerate(groups.items()):
        draw_group(axes, f"C{number % 10}", label, [lines[job] for job in jobs], metric, x)
    unit = " (nats per predicted token)" if metric == "loss" else ""
    axes.set(xlabel=AXES[x], ylabel=f"{metric}{unit}")
    axes.grid(alpha=0.3)
    if len(axes.get_legend_handles_labels()[0]) <= FEW:
        axes.legend()
    else:  # beside the curves, which it would cover
        axes.legend(loc="upper left", bbox_to_anchor=(1, 1), fontsize="small", borderaxespad=0.5)
        figure.set_figwidth(13)
    with explain_write_errors(out):
        figure.savefig(out, dpi=120)
    plt.close(figure)


def _check_out(out: pathlib.Path) -> None:
    # Before the runs are read, which takes longer.
    from matplotlib.backend_bases import FigureCanvasBase

    if not out.parent.is_dir():
        raise UserError(f"{out}: there is no folder {out.parent}")
    if out.suffix and out.suffix[1:].lower() not in FigureCanvasBase.filetypes:
        raise UserError(f"{out}: no picture is written as {out.suffix}: name .png, .pdf or .svg")


def draw_group(
    axes: Any, color: str, label: str, runs: Sequence[list[dict]], metric: str, x: str
) -> None:
    """Draws the curves of a run, or the means of several, in one colour."""
    # Held-out texts of one run share its colour, and differ by their markers.
    markers = itertools.cycle("os^vD")
    for name in find_names(runs[0], metric):
        curve = average_curves([read_curve(lines, name, x) for lines in runs])
        stream = name.removesuffix(f"/{metric}")
        # A line through one point has no length.
        marker = next(markers) if "/" in name else "." if len(curve.x) == 1 else ""
        style: dict[str, Any] = dict(ls="-") if "/" in name else dict(alpha=0.6)
        title = f"{label}: {stream if '/' in name else 'training'}"
        axes.plot(curve.x, curve.y, color=color, label=title, marker=marker, **style)
        if curve.low is not None:
            axes.fill_between(curve.x, curve.low, curve.high, color=color, alpha=0.15, lw=0)
    for title, guess, dashes in list_guesses(runs[0]) if metric == "loss" else ():
        axes.axhline(guess, color=color, ls=dashes, lw=1, label=f"{label}: {title}")


def list_guesses(lines: list[dict]) -> list[tuple[str, float, str]]:
    """Lists the entropies of the predicted tokens' distributions, which no curve should stay above.

    Returns:
        (title, entropy, line style) of each; held-out texts that no eye could tell apart have one.
    """
    groups: list[dict[str, float]] = []
    for name in find_names(lines, "unigram"):
        value = metrics_file.select_series(lines, name)[1][-1]
        near = (x for x in groups if abs(statistics.mean(x.values()) - value) < SAME_GUESS * value)
        if not (group := next(near, None)):
            groups.append(group := {})
        group[name.rpartition("/")[0] or "training"] = value
    titles = [f"unigram of {', '.join(x)}" if len(groups) > 1 else "unigram" for x in groups]
    values = [statistics.mean(x.values()) for x in groups]
    return list(zip(titles, values, itertools.cycle(("--", ":", "-.")), strict=False))


def name_run(job: pathlib.Path, jobs: Collection[pathlib.Path]) -> str:
    """Names a run by its folder, by the whole path where another one's is called so, too."""
    return job.name if [x.name for x in jobs].count(job.name) == 1 else str(job)


def read_run(workdir: pathlib.Path) -> list[dict]:
    """Reads the metrics of a run; raises a UserError if there are none."""
    if not workdir.is_dir():
        raise UserError(f"there is no folder {workdir}")
    lines = metrics_file.read_lines(workdir / "metrics.jsonl")
    if not lines:
        raise UserError(f"{workdir} holds no metrics.jsonl with a line in it")
    return lines


def find_names(lines: Sequence[Mapping[str, Any]], metric: str) -> list[str]:
    """Lists the numbers of a metric: that of training, and those of held-out texts."""
    names = {name for line in lines for name in line}
    return [metric] * (metric in names) + sorted(x for x in names if x.endswith(f"/{metric}"))


def list_metrics(runs: Any) -> list[str]:
    """Lists what `find_names` finds: metrics, and each number of one by itself."""
    names = {name for lines in runs for line in lines for name in line}
    names |= {name.rpartition("/")[2] for name in names}
    return sorted(names - {*AXES, "event"}, key=lambda name: ("/" in name, name))


def read_curve(lines: Sequence[dict], name: str, x: str) -> Curve:
    """Reads the points of a number; raises a UserError if the run did not count so."""
    points = [line for line in lines if metrics_file.is_number(line.get(name))]
    if not all(x in line for line in points):
        raise UserError(f"--x={x}: a run is of before its metrics had {x}; --x=step")
    return Curve([line[x] for line in points], [line[name] for line in points])


def average_curves(curves: Sequence[Curve]) -> Curve:
    """Averages curves point by point, as far as all of them go."""
    if len(curves) == 1:
        return curves[0]
    # Runs of several seeds may stop at different steps, and take different seconds to a step.
    xs = [statistics.mean(points) for points in zip(*(curve.x for curve in curves), strict=False)]
    rows = list(zip(*(curve.y for curve in curves), strict=False))
    means, deviations = ([f(row) for row in rows] for f in (statistics.mean, statistics.stdev))
    low = [mean - deviation for mean, deviation in zip(means, deviations, strict=True)]
    high = [mean + deviation for mean, deviation in zip(means, deviations, strict=True)]
    return Curve(xs, means, low, high)


def group_seeds(jobs: Sequence[pathlib.Path]) -> dict[str, list[pathlib.Path]]:
    """Groups the runs that differ in nothing but their seed, by a label of each group."""
    recipes = {str(job): flatten(read_config(job)) for job in jobs}
    groups = {}
    for words, names in group_recipes(recipes):
        first = pathlib.Path(names[0]).name
        label = " ".join(f"{key}={value}" for key, value in words.items()) or first
        groups[f"{label}, {len(names)} runs" if len(names) > 1 else first] = [
            pathlib.Path(name) for name in names
        ]
    return groups
