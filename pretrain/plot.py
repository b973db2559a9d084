"""Draw runs together:  python -m pretrain.plot runs/a runs/b --out=curves.png"""

import sys

from absl import flags

from pretrain import command_line
from pretrain.runtime.errors import UserError
from pretrain.training.curves import curves

OUT = flags.DEFINE_string("out", "curves.png", "The picture to write.")


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
    command_line.run(main, has_words=True)
