"""A fine-tuned run has both halves of its task, without the examples that they came of."""

from finetune import job as jobs
from pretrain.runtime import run_config
from tests.support import tiny_jobs
from tests.support.tiny_jobs import ignore, table
from tests.support.tiny_models import run

pytest_plugins = ["tests.support.tiny_runs"]
__all__ = ["run", "table"]


def test_a_saved_job_opens_with_the_task_that_was_trained(run, table, tmp_path):
    recipe = tiny_jobs.recipe(table, run("mlm").workdir)
    job = jobs.build_job(recipe, ignore)
    jobs.save_job(job, tmp_path)
    run_config.write_config(tmp_path, jobs.resolve_recipe(job, recipe).to_dict())
    table.unlink()
    tuned = jobs.load_job(tmp_path)
    assert tuned.task == job.task
    assert tuned.task.backbone == tuned.run.backbone
    assert tuned.data.to_config() == job.only.data.to_config()
