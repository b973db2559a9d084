"""Draw runs together:  python -m pretrain.plot runs/a runs/b --out=curves.png"""

from absl import flags

from pretrain import cli
from pretrain.runtime.errors import UsageError
from pretrain.training.reports.curves import draw_curves

OUT = flags.DEFINE_string("out", "curves.png", "The picture to write.")


def main(words: list[str]) -> None:
    if not words:
        raise UsageError("name the runs to draw: python -m pretrain.plot runs/a runs/b")
    draw_curves(words, OUT.value)
    print(OUT.value)


if __name__ == "__main__":
    cli.run(main, has_words=True)
