"""The last words of a run: what was learned, where it lies, what to type next."""

import pathlib
from collections.abc import Mapping
from typing import Any

import jax
from jax.experimental import multihost_utils

from pretrain.runtime.errors import UserError
from pretrain.training import logging
from pretrain.training.curves import curves

PARTS = {  # of what a held-out stream says, besides its loss
    "perplexity": ", perplexity {:.1f}",
    "word_perplexity": " ({:.1f} per word)",
    "unigram": "; guessing by frequency alone: {:.3f}",
}


def close(config, workdir: pathlib.Path, state) -> None:
    """Draws the curves and prints the summary, in the first process only.

    Raises:
        UserError: as `check`, of a run that is done; in every process.
    """
    multihost_utils.sync_global_devices("trained")  # the first has written what all read
    lines, step = logging.read_lines(workdir / "metrics.jsonl"), int(state.step)
    evaluations = [line for line in lines if any("/" in name for name in line)]
    evaluated = not config.evals or any(line["step"] == step for line in evaluations)
    done = step >= config.optim.steps and evaluated
    if jax.process_index() == 0:
        _tell(config, workdir, step, lines, done)
    if done:
        check(state, evaluations[-1] if evaluations else {})


def check(state, values: Mapping[str, Any]) -> None:
    """Whether training has come to anything.

    Args:
        values: what the evaluation that counts said.

    Raises:
        UserError: every step was skipped, or a held-out loss is not finite.
    """
    if int(state.skipped) == int(state.step) > 0:
        raise UserError(
            f"all {int(state.step)} steps were skipped, so nothing was learned: loss or gradient "
            "was never finite; look at the data, or try a lower optim.lr in another workdir"
        )
    names = [name for name, value in values.items() if name.endswith("/loss") and value is None]
    if names:
        raise UserError(
            f"{names[0]} is not finite: the weights have grown too large; try a lower optim.lr in "
            "another workdir"
        )


def _tell(config, workdir: pathlib.Path, step: int, lines: list[dict], done: bool) -> None:
    if lines:
        curves([workdir], workdir / "curves.png")
    print(f"{'Finished' if done else 'Stopped'} at step {step} of {config.optim.steps}.")
    names = dict.fromkeys(k[: -len("/loss")] for line in lines for k in line if k.endswith("/loss"))
    for name in names:
        print(_learned(lines, name))
    print(f"Weights in {workdir / 'checkpoints' / str(step)}, curves in {workdir / 'curves.png'}.")
    if done:
        print(f"Next: python -m pretrain.plot {workdir} ANOTHER   draws it beside another run")
    else:
        print("Next: the same command again goes on from here.")


def _learned(lines: list[dict], name: str) -> str:
    """What a held-out stream says, first and last."""
    steps, losses = logging.series(lines, f"{name}/loss")
    last = next(line for line in reversed(lines) if f"{name}/loss" in line)
    if steps[-1:] != [last["step"]]:
        return f"{name}: loss not finite (at step {last['step']})"
    text = f"{name}: loss {losses[-1]:.3f} (at step {steps[0]}: {losses[0]:.3f})"
    values = {part: last.get(f"{name}/{part}") for part in PARTS}
    return text + "".join(PARTS[k].format(x) for k, x in values.items() if logging.is_number(x))
