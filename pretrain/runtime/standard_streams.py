"""Opens standard streams that were closed before the process began, as by `2>&-`."""

import fcntl
import os
import sys


def open_closed() -> None:
    """Opens each closed standard stream on /dev/null."""
    # Otherwise its number would go to the next file that is opened, and prints into that file.
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if not _is_open(number):
            nothing = os.open(os.devnull, os.O_RDWR)
            os.dup2(nothing, number)
            if nothing != number:
                os.close(nothing)
            os.set_inheritable(number, True)
        if getattr(sys, name) is None:  # Python's own, where the stream was closed
            stream = open(number, "w" if number else "r", closefd=False)  # noqa: SIM115
            setattr(sys, name, stream)
            setattr(sys, f"__{name}__", stream)


def _is_open(number: int) -> bool:
    # For writing, unless it is the input.
    # A shell gives the number to its script, if it is free; that is open for reading.
    try:
        mode = fcntl.fcntl(number, fcntl.F_GETFL) & os.O_ACCMODE
    except OSError:
        return False
    return number == 0 or mode != os.O_RDONLY
