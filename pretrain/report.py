"""The last words of a run: what was learned, where it lies, what to type next."""

import pathlib

import jax

from pretrain import metrics, plot


def close(config, workdir: pathlib.Path, step: int) -> None:
    """Draws the curves and prints the summary, in the first process only."""
    if jax.process_index():
        return
    lines = metrics.read_lines(workdir / "metrics.jsonl")
    if lines:
        plot.curves([workdir], workdir / "curves.png")
    evaluated = not config.evals or any("/" in k for x in lines if x["step"] == step for k in x)
    done = step >= config.optim.steps and evaluated
    print(f"{'Finished' if done else 'Stopped'} at step {step} of {config.optim.steps}.")
    for line in _learned(lines):
        print(line)
    print(f"Weights in {workdir / 'checkpoints' / str(step)}, curves in {workdir / 'curves.png'}.")
    if done:
        print(f"Next: python -m pretrain.plot {workdir} ANOTHER   draws it beside another run")
    else:
        print("Next: the same command again goes on from here.")


def _learned(lines: list[dict]) -> list[str]:
    """What each held-out stream says, first and last."""
    names = dict.fromkeys(k[: -len("/loss")] for line in lines for k in line if k.endswith("/loss"))
    told = []
    for name in names:
        found = [line for line in lines if f"{name}/loss" in line]
        first, last = found[0], found[-1]
        text = f"{name}: loss {last[f'{name}/loss']:.3f} (at step {first['step']}: "
        text += f"{first[f'{name}/loss']:.3f}), perplexity {last[f'{name}/perplexity']:.1f}"
        if f"{name}/word_perplexity" in last:
            text += f" ({last[f'{name}/word_perplexity']:.1f} per word)"
        if f"{name}/unigram" in last:
            text += f"; guessing by frequency alone: {last[f'{name}/unigram']:.3f}"
        told.append(text)
    return told
