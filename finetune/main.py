"""Fine-tune a pretrained model:

python -m finetune.main --config=configs/finetune/sst2.py --config.init=runs/bert-base
"""

import math
import statistics
from pathlib import Path

import jax
from absl import flags
from jax.experimental import multihost_utils

from finetune import initialize, results
from finetune import job as jobs
from finetune.prediction import submissions
from finetune.prediction.predictor import Predictor
from pretrain import cli
from pretrain.distributed.sharding import Layout
from pretrain.runtime.errors import TRY_AGAIN, TerminatedError
from pretrain.runtime.progress import say
from pretrain.training import loop, summary
from pretrain.training.hooks import Evaluation
from pretrain.training.recipe_hooks import build_hooks

flags.adopt_module_key_flags(cli)


def main(config, workdir) -> int:
    """Trains config.num_seeds jobs that differ in their seed, and tells what they came to.

    Returns:
        The exit code: 0, or 75 if training was stopped before its end.
    """
    seeds = config.get("num_seeds", 1)
    found = []
    for number in range(seeds):
        seeded = config.copy_and_resolve_references()
        seeded.seed = config.seed + number
        values, done = one(seeded, workdir / f"seed-{number}" if seeds > 1 else workdir)
        if not done:
            return TRY_AGAIN
        found.append(values)
    if seeds > 1:
        spread(found)
    return 0


def one(config, workdir) -> tuple[dict[str, float | None], bool]:
    """One job: what the evaluation that counts said, and whether training is done.

    It leaves the predictions of the weights that count.

    Raises:
        UserError: as `summary.check`, of a job that is done.
    """
    hooks = build_hooks(config.get("hooks", {}))
    job = jobs.build_job(config, say)
    with cli.opened(jobs.resolve_recipe(job, config), workdir) as keep_recipe:

        def keep():
            keep_recipe()
            jobs.save_job(job, workdir)

        prepare = initialize.restore_backbone(job.start, say, config.random_init)
        result = loop.run(
            config,
            workdir,
            job.task,
            job.train,
            job.evals,
            prepare,
            cli.ACCEPT_CHANGES.value,
            job.score,
            keep=keep,
            extra_hooks=hooks,
        )
        # The first process has written what all are about to read.
        multihost_utils.sync_global_devices("trained")
        found, done = result.best, result.finished
        if done:
            summary.check(result.state, found.values if found else {})
        if found is not None:
            job.data.tune(found.values)
            jobs.save_job(job, workdir)
            done = done and predictions(job, workdir, config.mesh)
    if jax.process_index() == 0:
        told(config, workdir, int(result.state.step), found, done)
    return found.values if found else {}, done


def predictions(job: jobs.Job, workdir: Path, mesh) -> bool:
    """Writes what the best weights tell of each held-out example; False: told to terminate."""
    predictor = Predictor(jobs.load_job(workdir), Layout(loop.make_mesh(**mesh)))
    (workdir / "predictions").mkdir(exist_ok=True)
    for split in job.evals:
        try:
            lines, *_ = predictor.lines(job.examples[split])
        except TerminatedError:
            return False
        if jax.process_index() == 0:
            out = workdir / "predictions" / f"{split}.jsonl"
            with submissions.draft(out) as file, submissions.jsonl(file) as write:
                for example, line in zip(job.examples[split], lines, strict=True):
                    write(example, line)
    return True


def told(config, workdir: Path, step: int, found: Evaluation | None, done: bool) -> None:
    """Prints how far training came, what the evaluation that counts said, and what to type next."""
    steps, best = config.optim.steps, config.train.best
    why = ""
    if found and done and step < steps:
        why = f": {found.since} evaluations did not better the best"
    print(f"{'Finished' if done else 'Stopped'} at step {step} of {steps}{why}.")
    if found:
        which = f"best by {best}" if best else "last"
        print(f"{workdir}, step {found.step} ({which}):")
        print("  " + "  ".join(f"{name} {results.shown(x)}" for name, x in found.values.items()))
    if done and found:
        print(f"What it tells of them: {workdir / 'predictions'}.")
    if done:
        print(f"Next: python -m finetune.predict --workdir={workdir} in out.jsonl")
    else:
        print("Next: the same command again goes on from here.")


def spread(found: list[dict[str, float | None]]) -> None:
    """Prints the mean and the standard deviation over the seeds."""
    for name in found[0]:
        values = [math.nan if (x := each[name]) is None else x for each in found]
        deviation = statistics.stdev(values)
        print(f"{name}: {statistics.mean(values):.4f} +- {deviation:.4f} of {len(values)} seeds")


if __name__ == "__main__":
    sections = ["seed", "init", "random_init", "epochs", "data", "task.name"]
    sections += ["batches.B", "batches.L", "optim.lr", "train.best", "train.stop_after", "mesh"]
    interrupted = "training goes on from its last checkpoint"
    cli.run(lambda config: main(config, cli.workdir()), recipe=sections, interrupted=interrupted)
