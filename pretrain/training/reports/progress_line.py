"""The line of progress that a person reads while a model trains."""

from pretrain.runtime import progress
from pretrain.runtime.progress import format_clock, format_count


class Progress:
    """Shows the steps of a run: on a terminal a line that renews itself, else log lines."""

    def __init__(self, steps: int):
        self.steps = steps

    def show(self, step: int, values: dict[str, float]) -> None:
        parts = [f"step {step}/{self.steps}"]
        parts += [f"{name} {values[name]:.4f}" for name in ("loss",) if name in values]
        parts += [f"lr {values['lr']:.2e}"]
        if pace := values["steps_per_s"]:  # not in the first step, which compiles
            parts += [f"{format_count(values['tokens_per_s'])} tokens/s"]
            parts += [f"{values['utilisation']:.0%} of peak"] if "utilisation" in values else []
            parts += [f"data wait {values['data_wait']:.1%}"]
            parts += [f"{format_clock((self.steps - step) / pace)} left"]
        progress.say("  ".join(parts), renew=True)

    def say(self, text: str) -> None:
        progress.say(text)
