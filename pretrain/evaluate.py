"""Evaluate a trained run on another text, of which every token counts once.

    python -m pretrain.evaluate --workdir=runs/gpt2-mini --config=configs/evaluate/text.py
        --config.corpus.source='text:my/*.txt'

The recipe's `corpus`, `batches` and `objective` are changes of the run's own; the tokenizer is the
run's.
"""

import copy
import json
import pathlib
from collections.abc import Mapping
from typing import Any

import jax
import optax
from absl import flags
from ml_collections import ConfigDict, config_flags

from modules.metrics import Metrics
from pretrain import cli, objectives
from pretrain.data import batches, prepare
from pretrain.data.corpus.prepared_corpus import Corpus
from pretrain.distributed import processes
from pretrain.distributed.sharding import Layout, make_mesh
from pretrain.formats.base import explain_write_errors
from pretrain.inference import trained_run
from pretrain.inference.run import Run
from pretrain.runtime.addresses import remove_credentials
from pretrain.runtime.errors import TerminatedError, UserError
from pretrain.runtime.files import open_private
from pretrain.runtime.sections import call_section, name_section
from pretrain.training.compiled_steps import Steps
from pretrain.training.metrics import compute_means

flags.declare_key_flag("config")
flags.declare_key_flag("workdir")


def main(config: ConfigDict, workdir: pathlib.Path) -> None:
    """Prints what the run makes of the text, and adds a line to workdir/evaluations.jsonl."""
    processes.join()
    recipe = pathlib.Path(config_flags.get_config_filename(flags.FLAGS["config"])).stem
    line = {"recipe": recipe, **evaluate_run(config, workdir)}
    if jax.process_index():  # every process has the same sums
        return
    for name, value in line.items():
        print(f"{name:<16} {value:.4f}" if isinstance(value, float) else f"{name:<16} {value}")
    path = workdir / "evaluations.jsonl"
    # It names the text's address.
    with explain_write_errors(path), open(path, "a", opener=open_private) as file:
        file.write(json.dumps(line) + "\n")
    print(f"Added to {path}.")


def evaluate_run(config: ConfigDict, workdir: pathlib.Path) -> dict[str, Any]:
    """Evaluates the run in `workdir` on all documents of `config.corpus`.

    Returns:
        source and batches of the text; the run's step; the number of tokens that it predicted, and
        of original words and bytes where its objective counts them; then every metric of the
        objective, as in training.

    Raises:
        UserError: there is no run, tokenizer or text, the rows are longer than the run's model
            can read.
        TerminatedError: the process was asked to stop before the end of the text.
    """
    run = trained_run.load_run(workdir)
    changes = drop_unset(config.get("objective", {}))
    if changes and not changes.get("cache_window"):
        raise UserError(f"objective.{min(changes)} is of a cache: set objective.cache_window, too")
    fields = {**run.config.corpus, **drop_unset(config.corpus)}
    corpus = prepare_corpus(fields, run)
    objective = objectives.build_of_run(run, changes)
    with name_section("batches"):
        read = merge_batches(run.config.batches, config.batches)
        text = batches.build(corpus=corpus, split="all", **read)
        objectives.check_length(run.backbone, text.L)
    layout = Layout(make_mesh(data=1, fsdp=-1))
    # Nothing is learned: an optimizer without state leaves the memory to the batches.
    steps = Steps(objective, optax.identity(), layout, [text], seed=run.config.seed)
    params, step = trained_run.load_weights(run, steps.like.params)
    total = steps.evaluate(params, text, processes.Stop())
    if total is None:
        raise TerminatedError("told to terminate before the end of the text: there is no result")
    what = {"source": remove_credentials(fields["source"]), "batches": read, "step": step}
    return {**what, **count_units(total), **compute_means(total)}


def prepare_corpus(fields: Mapping[str, Any], run: Run) -> Corpus:
    """Prepares the corpus of these options in the run's tokens, with nothing held out."""
    saved: dict[str, Any] = {"name": "saved", "folder": str(run.workdir / "tokenizer")}
    if hasattr(run.tokenizer, "extend") and not run.reads_characters:
        saved["extend"] = 0  # a table of words has no row for an id of a new one
    whole = {"held_out": 0, "held_out_files": ""}
    return call_section("corpus", prepare.prepare, {**fields, **whole, "tokens": saved})


def drop_unset(changes: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in changes.items() if value is not None}


def merge_batches(section: ConfigDict, changes: ConfigDict) -> dict[str, Any]:
    """Merges the sections `batches`; where the layout differs, only L is taken from the run."""
    changes = copy.deepcopy(changes)
    if "L" in changes and changes.L is None:
        changes.L = section.L  # and what refers to it follows
    # Another layout would not know the options of the run's.
    same = changes.get("name", section.name) == section.name
    return {**(section if same else {"L": section.L}), **drop_unset(changes)}


def count_units(total: Metrics) -> dict[str, int]:
    """Counts the tokens that were predicted, and words and bytes where a metric is per these."""
    # The weight of a mean is what it was divided by.
    units = {"loss": "tokens", "word_perplexity": "words", "byte_perplexity": "bytes"}
    return {unit: round(float(total[name].weight)) for name, unit in units.items() if name in total}


if __name__ == "__main__":
    recipe = ["corpus", "batches"]
    cli.run(lambda config: main(config, cli.resolve_workdir()), recipe=recipe, required=["workdir"])
