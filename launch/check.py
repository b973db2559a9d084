"""Checks a job's recipe and the keys that its command changes, before a machine is rented for it.

    python -m launch.check -- python -m pretrain.main --config=configs/bert.py --config.optim.lr=1

The launch scripts ask it before they start.
"""

import argparse
import itertools
from collections.abc import Sequence

from launch import sweep
from launch.command_line import Parser


def main(argv: Sequence[str] | None = None) -> None:
    """Ends with exit code 2 and a line if the command names no recipe, or none of its keys."""
    parser = Parser("launch.check", __doc__)
    parser.add_argument("program", nargs=argparse.REMAINDER, help="words of the command, after --")
    try:
        check(parser.parse_args(argv).program)
    except ValueError as error:
        parser.error(str(error))


def check(program: Sequence[str]) -> None:
    """Checks the recipe of a command, if it names one.

    Raises:
        ValueError: there is no such recipe, or it has none of a key's name.
    """
    words = [*program, ""]
    for word, following in itertools.pairwise(words):
        name, equals, value = word.partition("=")
        if name in ("--config", "-config"):
            sweep.check_program(value if equals else following, program)


if __name__ == "__main__":
    main()
