"""Keeps quiet what Orbax leaves running where one of several arrays cannot be read or written."""

import functools
import inspect
import logging
import sys


@functools.cache
def silence_tracebacks() -> None:
    """Keeps tracebacks of abandoned work from burying the line that names the damage."""
    # Orbax closes the event loop under the other arrays' work.  Each then reports to asyncio's
    # log, or as an exception that nobody can catch, from Python or from a thread of TensorStore.
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    report_unraisable, report = sys.unraisablehook, sys.excepthook

    def unraisable_hook(unraisable) -> None:
        if not inspect.iscoroutine(unraisable.object) and not is_abandoned(unraisable.exc_value):
            report_unraisable(unraisable)

    def hook(kind, error, traceback) -> None:
        if not is_abandoned(error):
            report(kind, error, traceback)

    sys.unraisablehook, sys.excepthook = unraisable_hook, hook


def is_abandoned(error: BaseException | None) -> bool:
    """Checks whether an error says that the event loop of the work is gone."""
    return isinstance(error, RuntimeError) and str(error) == "Event loop is closed"
