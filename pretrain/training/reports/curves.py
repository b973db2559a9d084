"""Draws the loss curves of runs."""

import itertools
import pathlib

from pretrain.runtime.errors import UserError
from pretrain.training.reports import metrics_file


def draw_curves(runs, out) -> None:
    """Draws loss by step of every run: lines are training, dots held out, dashes a constant guess.

    Args:
        runs: workdirs with a metrics.jsonl.
        out: the PNG to write.

    Raises:
        UserError: a run has written no metrics yet.
    """
    import matplotlib  # slow, and few need it

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(9, 5.5), layout="constrained")
    for number, run in enumerate(map(pathlib.Path, runs)):
        color = f"C{number % 10}"
        lines = metrics_file.read_lines(run / "metrics.jsonl")
        if not lines:
            raise UserError(f"{run} holds no metrics.jsonl with a line in it")
        axes.plot(
            *metrics_file.select_series(lines, "loss"),
            color=color,
            alpha=0.6,
            label=f"{run.name}: training",
        )
        names = sorted({k[: -len("/loss")] for line in lines for k in line if "/loss" in k})
        for name, marker in zip(names, itertools.cycle("os^vD")):
            held_out = metrics_file.select_series(lines, f"{name}/loss")
            axes.plot(*held_out, f"{marker}-", color=color, label=f"{run.name}: {name}")
            guess = metrics_file.select_series(lines, f"{name}/unigram")[1]
            if guess:
                axes.axhline(guess[-1], color=color, ls="--", lw=1, label=f"{run.name}: unigram")
    axes.set(xlabel="step", ylabel="loss (nats per predicted token)")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(out, dpi=120)
    plt.close(figure)
