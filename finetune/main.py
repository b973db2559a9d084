"""Fine-tunes a pretrained model:

python -m finetune.main --config=configs/finetune/sst2.py --config.init=runs/bert-base
"""

import contextlib
from pathlib import Path

import jax
from jax.experimental import multihost_utils
from ml_collections import ConfigDict

from finetune import initialize, tasks
from finetune import job as jobs
from finetune.prediction import submissions
from finetune.prediction.predictor import Predictor
from finetune.several.parts import list_sections
from finetune.several.repetitions import check_folder
from modules import plugins
from pretrain.distributed import processes
from pretrain.distributed.sharding import Layout
from pretrain.runtime.errors import TRY_AGAIN, TerminatedError
from pretrain.runtime.job_options import DEFAULTS, JobOptions
from pretrain.runtime.json_files import write_json
from pretrain.runtime.progress import say
from pretrain.training import loop
from pretrain.training.hooks import Evaluation
from pretrain.training.recipe_hooks import build_hooks
from pretrain.training.reports import results, summary
from pretrain.training.train_state import replace_params
from pretrain.training.workdir import open_workdir

STATS = "stats.json"  # means and deviations over seeds and folds, beside their folders
SECTIONS = (  # that a recipe is to have
    *("seed", "init", "random_init", "epochs", "batches.B", "batches.L", "optim.lr"),
    *("train.best", "train.stop_after", "mesh"),
)


def main(config: ConfigDict, workdir: Path, options: JobOptions = DEFAULTS) -> int:
    """Trains a job for each seed and each fold of a recipe, and prints their scores.

    Returns:
        The exit code: 0, or 75 if training was stopped before its end.

    Raises:
        UserError: see `jobs.build_job` and `check_folder`.
    """
    recipes, scores = jobs.list_recipes(config), {}
    check_folder(workdir, recipes)
    for name, recipe in recipes.items():
        values, is_done = train_job(recipe, workdir / name, options)
        if not is_done:
            return TRY_AGAIN
        scores[name] = values
    # One process writes what all have computed alike.
    if len(recipes) > 1 and jax.process_index() == 0:
        stats = results.compute_stats(list(scores.values()))
        write_json(workdir / STATS, {"jobs": scores, **stats})
        what = "folds" if config.get("data", {}).get("folds") else "seeds"
        results.print_stats(stats, f"{len(scores)} {what}")
    return 0


def train_job(
    config: ConfigDict, workdir: Path, options: JobOptions = DEFAULTS
) -> tuple[dict[str, float | None], bool]:
    """Trains the job of one seed, and writes the predictions of its best weights.

    Returns:
        (numbers of the evaluation that counts, whether the job is done)

    Raises:
        UserError: as `summary.check_result`, of a job that is done.
    """
    # First: a name that is wrong ends here, before the data are read.
    hooks = build_hooks(config.get("hooks", {}))
    if options.joins and uses_devices(config):
        processes.join(options.heartbeat, options.join_timeout)  # before a device is touched
    job = jobs.build_job(config, say)
    with open_workdir(jobs.resolve_recipe(job, config), workdir, options) as keep_recipe:

        def save_recipe_and_job():
            keep_recipe()
            jobs.save_job(job, workdir)

        restore = initialize.restore_backbone(job.start, say, config.random_init)
        result = loop.run(
            config,
            workdir,
            job.task,
            job.train,
            job.evals,
            lambda state: replace_params(state, restore(state.params)),
            options.accept_changes,
            job.score,
            keep=save_recipe_and_job,
            extra_hooks=hooks,
        )
        # The first process has written what all are about to read.
        multihost_utils.sync_global_devices("trained")
        best, is_done = result.best, result.finished
        if is_done:
            summary.check_result(result.state, best.values if best else {})
        if best is not None:
            # Predictions use what is tuned, as SQuAD 2.0's threshold: it is saved before them.
            job.tune(best.values)
            jobs.save_job(job, workdir)
            is_done = is_done and write_predictions(job, workdir, config.mesh)
    if jax.process_index() == 0:
        missing = "predictions are" if result.finished and not is_done else ""
        print_summary(config, workdir, int(result.state.step), best, is_done, missing)
    return best.values if best else {}, is_done


def uses_devices(config: ConfigDict) -> bool:
    """Checks whether a task of the recipe computes on devices before there is anything to train."""
    names = [section.task.get("name", "") for section in list_sections(config).values()]
    with contextlib.suppress(plugins.FieldError):  # a wrong name is told where the task is built
        kinds = [tasks.load_kind(name).TaskData for name in names]
        return any(getattr(kind, "uses_devices", False) for kind in kinds)
    return False


def write_predictions(job: jobs.Job, workdir: Path, mesh) -> bool:
    """Writes the best weights' predictions of all held-out examples.

    Returns:
        False if the process was told to terminate before the end.
    """
    layout = Layout(loop.make_mesh(**mesh))
    for name, part in job.parts.items():
        predictor, folder = Predictor(jobs.load_job(workdir, name), layout), workdir / "predictions"
        (folder / name).mkdir(parents=True, exist_ok=True)
        for split in part.evals:
            try:
                # Every process predicts, as a step spans all devices; the first one writes.
                lines, *_ = predictor.predict_lines(part.examples[split])
            except TerminatedError:
                return False
            if jax.process_index() == 0:
                out = folder / name / f"{split}.jsonl"
                with submissions.open_draft(out) as file, submissions.write_jsonl(file) as write:
                    for example, line in zip(part.examples[split], lines, strict=True):
                        write(example, line)
    return True


def print_summary(
    config, workdir: Path, step: int, best: Evaluation | None, is_done: bool, missing: str = ""
) -> None:
    """Prints how far training came, the evaluation that counts, and the next command.

    Args:
        missing: see `summary.describe_end`.
    """
    steps, name = config.optim.steps, config.train.best
    why = ""
    if best and is_done and step < steps:
        why = f": {best.since} evaluations did not better the best"
    print(f"{summary.describe_end(step, steps, is_done, missing)}{why}.")
    if best:
        which = f"best by {name}" if name else "last"
        print(f"{workdir}, step {best.step} ({which}):")
        print("  " + "  ".join(f"{k} {results.format_score(x)}" for k, x in best.values.items()))
    if is_done and best:
        print(f"Predictions: {workdir / 'predictions'}.")
    if is_done:
        which = " --task=..." if config.get("tasks") else ""
        print(f"Next: python -m finetune.predict --workdir={workdir}{which} in out.jsonl")
    else:
        print(summary.NEXT)


if __name__ == "__main__":
    from absl import flags

    from pretrain import cli  # not above: a caller from Python has flags of its own

    flags.adopt_module_key_flags(cli)
    cli.run(
        lambda config: main(config, cli.resolve_workdir(), cli.read_options()),
        recipe=SECTIONS,
        interrupted="training goes on from its last checkpoint",
    )
