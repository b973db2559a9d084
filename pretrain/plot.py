"""Draw runs together:  python -m pretrain.plot runs/a runs/b --out=curves.png

    python -m pretrain.plot runs/a runs/b --x=tokens
    python -m pretrain.plot runs/lr-* --metric=accuracy --x=seconds --band

With --band runs that differ in nothing but their seed are drawn as their mean, in a band of a
standard deviation to either side.  A folder of runs for each seed stands for these.
"""

from absl import flags

from pretrain import cli
from pretrain.runtime.errors import UsageError
from pretrain.training.reports.curves import AXES, draw_curves

OUT = flags.DEFINE_string("out", "curves.png", "The picture to write.")
METRIC = flags.DEFINE_string("metric", "loss", "Metric that is drawn: loss, accuracy, dev/f1, ...")
X = flags.DEFINE_enum("x", "step", [*AXES], "By what it is drawn.")
BAND = flags.DEFINE_bool("band", False, "Draw the mean of runs that differ by their seed alone.")


def main(words: list[str]) -> None:
    if not words:
        raise UsageError("name the runs to draw: python -m pretrain.plot runs/a runs/b")
    draw_curves(words, OUT.value, METRIC.value, X.value, BAND.value)
    print(OUT.value)


if __name__ == "__main__":
    cli.run(main, has_words=True)
