"""Parses the command lines of the launchers."""

import argparse
import sys
from typing import NoReturn


class Parser(argparse.ArgumentParser):
    """Prints what a module says of itself as its help, and a mistake as a line."""

    def __init__(self, module: str, description: str | None) -> None:
        super().__init__(
            prog=f"python -m {module}",
            description=description,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )

    def error(self, message: str) -> NoReturn:
        """Ends the process with exit code 2, as the other commands do."""
        print(f"error: {message}", file=sys.stderr)
        sys.exit(2)
