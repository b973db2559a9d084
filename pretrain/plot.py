"""Draw runs together:  python -m pretrain.plot runs/a runs/b --out=curves.png"""

import itertools
import pathlib
import sys

from absl import flags

from pretrain import commandline, metrics
from pretrain.errors import UserError

OUT = flags.DEFINE_string("out", "curves.png", "The picture to write.")


def curves(runs, out) -> None:
    """Loss by step of every run - line: training, dots: held out, dashes: the best constant guess.

    Args:
        runs: workdirs with a metrics.jsonl.  out: the PNG to write.

    Raises:
        UserError: a run has written no metrics yet.
    """
    import matplotlib  # slow, and few need it

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(9, 5.5), layout="constrained")
    for number, run in enumerate(map(pathlib.Path, runs)):
        color = f"C{number % 10}"
        lines = metrics.read_lines(run / "metrics.jsonl")
        if not lines:
            raise UserError(f"{run} holds no metrics.jsonl with a line in it")
        axes.plot(
            *metrics.series(lines, "loss"), color=color, alpha=0.6, label=f"{run.name}: training"
        )
        names = sorted({k[: -len("/loss")] for line in lines for k in line if "/loss" in k})
        for name, marker in zip(names, itertools.cycle("os^vD")):
            held_out = metrics.series(lines, f"{name}/loss")
            axes.plot(*held_out, f"{marker}-", color=color, label=f"{run.name}: {name}")
            guess = metrics.series(lines, f"{name}/unigram")[1]
            if guess:
                axes.axhline(guess[-1], color=color, ls="--", lw=1, label=f"{run.name}: unigram")
    axes.set(xlabel="step", ylabel="loss (nats per predicted token)")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(out, dpi=120)
    plt.close(figure)


def main(argv) -> None:
    """Draws the runs named on the command line."""
    try:
        if len(argv) < 2:
            raise UserError("name the runs to draw: python -m pretrain.plot runs/a runs/b")
        curves(argv[1:], OUT.value)
    except UserError as error:
        sys.exit(f"error: {error}")
    print(OUT.value)


if __name__ == "__main__":
    commandline.run(main, has_words=True)
