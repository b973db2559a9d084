"""The last words of a run: what was learned, where it lies, what to type next."""

import pathlib
from collections.abc import Mapping
from typing import Any

import jax
from jax.experimental import multihost_utils

from pretrain.runtime.errors import UserError
from pretrain.training.reports import metrics_file
from pretrain.training.reports.curves import draw_curves

NEXT = "Next: the same command again goes on from here."
PARTS = {  # of what a held-out stream says, besides its loss: decimals and words
    "perplexity": (1, ", perplexity {}"),
    "word_perplexity": (1, " ({} per word)"),
    "unigram": (3, "; guessing by frequency alone: {}"),
}


def close(config, workdir: pathlib.Path, result) -> None:
    """Draws the curves and prints the summary of a `loop.Result`, in the first process only.

    Raises:
        UserError: as `check_result`, of a run that is done; in every process.
    """
    multihost_utils.sync_global_devices("trained")  # the first has written what all read
    if jax.process_index() == 0:
        _print_summary(config, workdir, int(result.state.step), result.finished)
    if result.finished:
        check_result(result.state, result.best.values if result.best else {})


def check_result(state, values: Mapping[str, Any]) -> None:
    """Checks that training has come to anything.

    Args:
        values: what the evaluation that counts said.

    Raises:
        UserError: every step was skipped, or a held-out loss is not finite.
    """
    # Such a run ends without an error of its own, if it has fewer steps than `max_skips`.
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


def _print_summary(config, workdir: pathlib.Path, step: int, done: bool) -> None:
    lines = metrics_file.read_lines(workdir / "metrics.jsonl")  # all lives' of the run
    if lines:
        draw_curves([workdir], workdir / "curves.png")
    print(f"{describe_end(step, config.optim.steps, done)}.")
    names = dict.fromkeys(k[: -len("/loss")] for line in lines for k in line if k.endswith("/loss"))
    for name in names:
        print(_describe_stream(lines, name))
    print(f"Weights in {workdir / 'checkpoints' / str(step)}, curves in {workdir / 'curves.png'}.")
    if done:
        print(f"Next: python -m pretrain.plot {workdir} ANOTHER   draws it beside another run")
    else:
        print(NEXT)


def describe_end(step: int, steps: int, is_done: bool, missing: str = "") -> str:
    """Says how far a run came.

    Args:
        missing: what is to be made of a run that has been trained; "": nothing, or the last
            evaluation, where all steps are done and the run is not.
    """
    if is_done:
        return f"Finished at step {step} of {steps}"
    missing = missing or ("the last evaluation is" if step == steps else "")
    why = f": training is done, {missing} still missing" if missing else ""
    return f"Stopped at step {step} of {steps}{why}"


def _describe_stream(lines: list[dict], name: str) -> str:
    steps, losses = metrics_file.select_series(lines, f"{name}/loss")
    last = next(line for line in reversed(lines) if f"{name}/loss" in line)
    if steps[-1:] != [last["step"]]:
        return f"{name}: loss not finite (at step {last['step']})"
    first, now = (_format(x, 3) for x in (losses[0], losses[-1]))
    text = f"{name}: loss {now} (at step {steps[0]}: {first})"
    for part, (decimals, words) in PARTS.items():
        if metrics_file.is_number(x := last.get(f"{name}/{part}")):
            text += words.format(_format(x, decimals))
    return text


def _format(x: float, decimals: int) -> str:
    # In powers of ten where it is very large: a perplexity may have hundreds of digits.
    return f"{x:.{decimals}f}" if abs(x) < 1e9 else f"{x:.3e}"
