"""Draws the losses of runs by the tokens that they read: NAME.png.

    python -m docs.figures.curves NAME runs/a runs/b

Lines are training, points held out, and dashes the best constant guess.
"""

import pathlib
import sys
from typing import Any

from matplotlib import pyplot as plt

from docs.figures.drawing import BLUE, GREEN, ORANGE, RED, save_picture
from pretrain.training.reports import metrics_file

COLORS = (BLUE, ORANGE, GREEN, RED)


def draw_run(axes: Any, run: pathlib.Path, color: str) -> None:
    """Draws one run's training loss, held-out losses and unigram baseline."""
    lines = metrics_file.read_lines(run / "metrics.jsonl")
    trained = [x for x in lines if "loss" in x]
    axes.plot(*gather(trained, "loss"), color=color, lw=1.8, label=run.name)
    streams = [name.removesuffix("/loss") for name in lines[-1] if name.endswith("/loss")]
    for stream in streams[:1]:
        held_out = [x for x in lines if f"{stream}/loss" in x]
        axes.plot(*gather(held_out, f"{stream}/loss"), color=color, ls="", marker="o", ms=7)
        axes.axhline(held_out[-1][f"{stream}/unigram"], color=color, ls="--", lw=1.2)


def gather(lines: list[dict], name: str) -> tuple[list[float], list[float]]:
    """Returns the millions of tokens and the values of a number, line by line."""
    return [x["tokens"] / 1e6 for x in lines], [x[name] for x in lines]


def draw_curves(runs: list[pathlib.Path]) -> Any:
    """Draws all runs in one picture."""
    figure, axes = plt.subplots(figsize=(7.6, 4.6), layout="constrained")
    for run, color in zip(runs, COLORS, strict=False):
        draw_run(axes, run, color)
    axes.set_xlabel("million tokens read", fontsize=13)
    axes.set_ylabel("loss, nats per predicted token", fontsize=13)
    axes.tick_params(labelsize=12)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=12, frameon=False)
    return figure


if __name__ == "__main__":
    name, *runs = sys.argv[1:]
    print(save_picture(draw_curves([pathlib.Path(run) for run in runs]), name))
