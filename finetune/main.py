"""Fine-tune a pretrained model:

python -m finetune.main --config=configs/finetune/sst2.py --config.init=runs/bert-base
"""

import statistics

import jax

from finetune import job as jobs
from finetune import starting
from pretrain import job, loop, metrics
from pretrain.data.progress import say


def main(config, workdir):
    """Trains config.seeds jobs that differ in their seed, and tells what they came to."""
    results = []
    for number in range(config.get("seeds", 1)):
        own = workdir / f"seed-{number}" if config.get("seeds", 1) > 1 else workdir
        seeded = config.copy_and_resolve_references()
        seeded.seed = config.seed + number
        results.append(one(seeded, own))
    if len(results) > 1:
        spread(results)


def one(config, workdir) -> dict[str, float]:
    """One job; what its best evaluation said."""
    made = jobs.made(config, say)
    with job.opened(jobs.recipe(made, config), workdir):
        jobs.keep(made, workdir)
        prepare = starting.restored(made.start, say)
        loop.run(
            config, workdir, made.task, made.train, made.evals, prepare, job.ACCEPT_CHANGES.value,
            made.score,
        )  # fmt: skip
    values = told(config, workdir)
    if values and hasattr(made.form, "settle"):
        made.form.settle(values)
        jobs.keep(made, workdir)
    return values


def told(config, workdir) -> dict[str, float]:
    """Prints the evaluation that counts: the best, or the last."""
    lines = [x for x in metrics.read_lines(workdir / "metrics.jsonl") if any("/" in k for k in x)]
    if not lines or jax.process_index():
        return {}
    name = config.train.best.removeprefix("-")
    sign = -1 if config.train.best.startswith("-") else 1
    line = max(lines, key=lambda x: sign * x[name]) if name else lines[-1]
    values = {k: v for k, v in line.items() if "/" in k}
    print(
        f"{workdir}, step {line['step']}: " + "  ".join(f"{k} {v:.4f}" for k, v in values.items())
    )
    return values


def spread(results: list[dict[str, float]]) -> None:
    """Prints the mean and the standard deviation over the seeds."""
    for name in results[0]:
        values = [result[name] for result in results]
        deviation = statistics.stdev(values)
        print(f"{name}: {statistics.mean(values):.4f} +- {deviation:.4f} of {len(values)} seeds")


if __name__ == "__main__":
    job.start(main)
