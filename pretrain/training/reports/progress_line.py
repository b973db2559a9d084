"""The line of progress that a person reads."""

import sys

import jax


class Progress:
    """Progress for a person: on a terminal a line that renews itself, else log lines."""

    def __init__(self, steps: int):
        self.steps = steps
        self.live, self.speaks = sys.stderr.isatty(), jax.process_index() == 0

    def show(self, step: int, values: dict[str, float]) -> None:
        parts = [f"step {step}/{self.steps}"]
        parts += [f"{name} {values[name]:.4f}" for name in ("loss",) if name in values]
        parts += [f"lr {values['lr']:.2e}"]
        if pace := values["steps_per_s"]:  # not in the first step, which compiles
            parts += [f"{_format_count(values['tokens_per_s'])} tokens/s"]
            parts += [f"{values['utilisation']:.0%} of peak"] if "utilisation" in values else []
            parts += [f"data wait {values['data_wait']:.1%}"]
            parts += [f"{_format_clock((self.steps - step) / pace)} left"]
        self.say("  ".join(parts), renew=True)

    def say(self, text: str, *, renew: bool = False) -> None:
        """Prints a line; with `renew`, on a terminal, one that the next line replaces."""
        if self.speaks:
            start, end = ("\r\x1b[K", "" if renew else "\n") if self.live else ("", "\n")
            print(f"{start}{text}", end=end, file=sys.stderr, flush=True)


def _format_count(x: float) -> str:
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if x >= size:
            return f"{x / size:.1f}{letter}"
    return f"{x:.0f}"


def _format_clock(seconds: float) -> str:
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
