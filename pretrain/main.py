"""Pretrain a model:  python -m pretrain.main --config=configs/xlnet.py"""

import pathlib

from flax.core import FrozenDict
from ml_collections import ConfigDict

import modules
from pretrain import objectives
from pretrain.data import batches, prepare
from pretrain.data.batches.loader import list_phases
from pretrain.data.batches.phases import build_training, configure_training
from pretrain.inference import continuation
from pretrain.inference.text_format import check_direction
from pretrain.runtime.errors import TRY_AGAIN
from pretrain.runtime.job_options import DEFAULTS, JobOptions
from pretrain.runtime.json_files import write_json
from pretrain.runtime.progress import say
from pretrain.runtime.run_config import DATA
from pretrain.runtime.sections import call_section, name_section
from pretrain.training import loop
from pretrain.training.recipe_hooks import build_hooks
from pretrain.training.reports import summary
from pretrain.training.workdir import check_training, open_workdir

SECTIONS = (  # that a recipe is to have
    *("seed", "corpus.tokens.name", "batches.name", "batches.B", "batches.L", "evals"),
    *("model.name", "objective.name", "optim.lr", "optim.steps", "train", "mesh"),
)


def main(config: ConfigDict, workdir: pathlib.Path, options: JobOptions = DEFAULTS) -> int:
    """Prepares the corpus, then trains on it; the same command again resumes.

    Returns:
        The exit code: 0, or 75 if training was stopped before its end.

    Raises:
        UserError: see `loop.run`, or the recipe does not build.
    """
    if config.get("text_format"):
        check_direction(config.text_format, config.batches, "this recipe")
    start = continuation.open_start(config, workdir)
    config = start.config
    execution = config.get("execution")
    backbone = call_section("model", modules.build, config.model, execution=execution)
    parts = dict(backbone=backbone, head=config.get("head"), execution=execution)
    objective = call_section("objective", objectives.build, config.objective, **parts)
    # Refused before a corpus is prepared.
    hooks = build_hooks(config.get("hooks", {}))
    with name_section("batches"):
        shapes = configure_training(config.batches, config.get("first_phase"))
    for layout in shapes:
        objectives.check_length(backbone, layout.L)
    held_out = [configure_evaluation(config, name) for name in config.evals]
    check_training(config, shapes, held_out)
    start.check_special([objective, *shapes, *held_out])
    corpus = call_section("corpus", prepare.prepare, start.corpus_fields(), verify=options.verify)
    # The ids are the tokenizer's, which is known only once the corpus is prepared.
    objective = objective.clone(special=FrozenDict(corpus.tokenizer.special))
    with name_section("batches"):
        train = build_training(
            corpus, config.seed, config.optim.steps, config.batches, config.get("first_phase")
        )
    evals = {}
    for name, changes in config.evals.items():
        with name_section(f"evals.{name}"):
            evals[name] = batches.build(corpus=corpus, **{**config.batches, **changes})
    for layout in (*list_phases(train), *evals.values()):
        objectives.check_length(backbone, layout.L)
    with open_workdir(config, workdir, options) as keep_recipe:
        for note in start.notes:
            say(note)

        def keep():
            keep_recipe()
            corpus.tokenizer.save(workdir / "tokenizer")
            write_json(workdir / DATA, corpus.count())

        result = loop.run(
            config,
            workdir,
            objective,
            train,
            evals,
            accept_changes=options.accept_changes,
            keep=keep,
            extra_hooks=hooks,
            **start.loop_options(corpus.tokenizer, say),
        )
        summary.close(config, workdir, result)
    return 0 if result.finished else TRY_AGAIN


def configure_evaluation(config: ConfigDict, name: str) -> batches.BatchShapes:
    """Builds the layout of one of `evals` without a text: its shapes are known."""
    fields = {**config.batches, **config.evals[name]}
    with name_section(f"evals.{name}"):
        return batches.configure(**{key: x for key, x in fields.items() if key != "split"})


if __name__ == "__main__":
    from absl import flags

    from pretrain import cli  # not above: a caller from Python has flags of its own

    flags.adopt_module_key_flags(cli)
    verify = flags.DEFINE_bool(
        "verify", False, "Read all of the prepared corpus at the start, to find damage to it."
    )
    cli.run(
        lambda config: main(
            config, cli.resolve_workdir(), cli.read_options()._replace(verify=verify.value)
        ),
        recipe=SECTIONS,
        interrupted="training goes on from its last checkpoint",
    )
