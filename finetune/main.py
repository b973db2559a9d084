"""Fine-tune a pretrained model:

python -m finetune.main --config=configs/finetune/sst2.py --config.init=runs/bert-base
"""

import statistics
from pathlib import Path

import jax

from finetune import job as jobs
from finetune import results, starting
from pretrain import job, loop
from pretrain.data.progress import say


def main(config, workdir):
    """Trains config.seeds jobs that differ in their seed, and tells what they came to."""
    seeds = config.get("seeds", 1)
    found = []
    for number in range(seeds):
        seeded = config.copy_and_resolve_references()
        seeded.seed = config.seed + number
        found.append(one(seeded, workdir / f"seed-{number}" if seeds > 1 else workdir))
    if seeds > 1:
        spread(found)


def one(config, workdir) -> dict[str, float]:
    """One job; what its best evaluation said."""
    made = jobs.made(config, say)
    with job.opened(jobs.recipe(made, config), workdir):
        jobs.keep(made, workdir)
        prepare = starting.restored(made.start, say, config.fresh)
        state = loop.run(
            config, workdir, made.task, made.train, made.evals, prepare, job.ACCEPT_CHANGES.value,
            made.score,
        )  # fmt: skip
    if jax.process_index():
        return {}
    found = results.result(workdir)
    if found is None:
        return {}
    if hasattr(made.form, "settle"):
        made.form.settle(found.values)
        jobs.keep(made, workdir)
    told(config, workdir, int(state.step), found)
    return found.values


def told(config, workdir: Path, step: int, found: results.Result) -> None:
    """Prints how far training came, what the evaluation that counts said, and what to type next."""
    steps, best = config.optim.steps, config.train.best
    print(f"{'Finished' if step == steps else 'Stopped'} at step {step} of {steps}.")
    which = f"best by {best}" if best else "last"
    print(f"{workdir}, step {found.step} ({which}):")
    print("  " + "  ".join(f"{name} {value:.4f}" for name, value in found.values.items()))
    print(f"Next: python -m finetune.predict --workdir={workdir} in out.jsonl")


def spread(found: list[dict[str, float]]) -> None:
    """Prints the mean and the standard deviation over the seeds."""
    for name in found[0]:
        values = [each[name] for each in found]
        deviation = statistics.stdev(values)
        print(f"{name}: {statistics.mean(values):.4f} +- {deviation:.4f} of {len(values)} seeds")


if __name__ == "__main__":
    job.start(main)
