"""Trains the PyTorch twin of an AWD-LSTM recipe on the very windows of ours.

    python -m benchmarks.language_model_twin --config=configs/awd_lstm.py:wikitext2_mini
        --test='text:wikitext-2/wiki.test.tokens'

The corpus and its words, the windows of every step, the optimizer and the steps of the evaluations
are those of `pretrain.main`.  The first weights and all dropout are drawn by PyTorch.

    --test=...          another text to measure, in rows of --test_rows; "": none
    --peer_python=...   the Python that has torch, if this one has not
    --threads=1         of PyTorch
    --json=...          a file to write the losses to
"""

import json
import math
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from absl import flags
from ml_collections import ConfigDict

import modules
from benchmarks.contest import options
from benchmarks.contest.options import JSON, PEER_PYTHON, THREADS
from benchmarks.contest.runner import run_job
from benchmarks.contest.sections import resolve_fields, resolve_optim
from pretrain import cli
from pretrain.data import batches, prepare
from pretrain.data.batches import BatchLayout
from pretrain.data.batches.loader import read_batches
from pretrain.data.corpus.prepared_corpus import Corpus
from pretrain.runtime.errors import UserError
from pretrain.runtime.sections import call_section, name_section

flags.declare_key_flag("config")
flags.adopt_module_key_flags(options)
TEST = flags.DEFINE_string("test", "", "A source of text to measure besides.")
TEST_ROWS = flags.DEFINE_integer("test_rows", 1, "Rows that the text is read in.", 1)


def main(config: ConfigDict) -> None:
    """Trains the twin, and prints the loss and the perplexity of each evaluation."""
    description = describe(config)
    corpus = call_section("corpus", prepare.prepare, config.corpus)
    windows = export_windows(config, corpus)
    if TEST.value:
        windows |= export_test(config, corpus, TEST.value, TEST_ROWS.value)
    # Another Python, perhaps of another version, shares no more with us than files.
    with tempfile.TemporaryDirectory() as folder:
        paths = {"windows": f"{folder}/windows.npz", "losses": f"{folder}/losses.json"}
        np.savez(paths["windows"], **windows)  # type: ignore[arg-type]
        path = Path(folder, "job.json")
        path.write_text(json.dumps(description | paths | {"threads": THREADS.value}))
        module = "benchmarks.peers.language_model_twin"
        run_job(module, path, PEER_PYTHON.value, THREADS.value)
        evaluations = json.loads(Path(paths["losses"]).read_text())
    for entry in evaluations:
        print(describe_evaluation(entry), flush=True)
    if JSON.value:
        Path(JSON.value).write_text(json.dumps({"evaluations": evaluations}, indent=1))


def describe(config: ConfigDict) -> dict[str, Any]:
    """Returns what PyTorch is to do, as JSON; all fields are set, also those left to a default.

    Raises:
        UserError: the recipe has no twin.
    """
    objective = {"ar": 0.0, "tar": 0.0, "dropout": 0.0, **config.objective}
    if (config.model.name, objective["name"]) != ("awd_lstm", "clm"):
        raise UserError("a twin is of model.name='awd_lstm' and objective.name='clm'")
    steps, every = config.optim.steps, config.train.eval_every
    # The last step is evaluated wherever it falls.
    evaluations = steps // every + bool(steps % every)
    for hook in config.get("hooks", {}).values():
        # An average can begin at evaluation n + 2 at the earliest.
        if hook.name != "pretrain.training.nt_asgd" or evaluations > hook.n + 1:
            raise UserError(
                f"hooks: a twin takes no average, and runs to {hook.get('n', 0) + 1} evaluations"
            )
    model = resolve_fields(modules.build(**config.model)) | {"name": "awd_lstm"}
    return dict(
        model=model,
        objective=objective,
        optim=resolve_optim(config.optim.to_dict()),
        eval_every=every,
        seed=config.seed,
    )


def export_windows(config: ConfigDict, corpus: Corpus) -> dict[str, np.ndarray]:
    """Returns the windows of training and of each evaluation, as "train/tokens_BT"."""
    with name_section("batches"):
        train = batches.build(corpus=corpus, seed=config.seed, **config.batches)
    arrays = list_windows("train", train, config.optim.steps)
    for name, changes in config.evals.items():
        with name_section(f"evals.{name}"):
            layout = batches.build(corpus=corpus, **{**config.batches, **changes})
        arrays |= list_windows(name, layout, layout.steps_per_epoch)
    return arrays


def export_test(config: ConfigDict, corpus: Corpus, source: str, rows: int) -> dict[str, Any]:
    """Returns the windows of a text in the words of the corpus, as "test/tokens_BT"."""
    saved = dict(name="saved", folder=str(corpus.folder / "tokenizer"), extend=0)
    changes = dict(source=source, tokens=saved, held_out=0.0, held_out_files="")
    text = call_section("corpus", prepare.prepare, {**config.corpus, **changes})
    layout = batches.build(corpus=text, split="all", **{**config.batches, "B": rows})
    return list_windows("test", layout, layout.steps_per_epoch)


def list_windows(split: str, layout: BatchLayout, steps: int) -> dict[str, np.ndarray]:
    """Returns the windows of a layout side by side, without the padding that all rows have.

    Raises:
        UserError: its rows are no windows that go on.
    """
    if "continues_B" not in layout.shapes():
        raise UserError("a twin reads windows that go on: set batches.name='bptt'")
    windows, ends, continues = [], [0], []
    for _, batch in zip(range(steps), (x for _, x in read_batches(layout)), strict=False):
        weights_BL = batch["loss_mask_BL"] * batch["weight_B"][:, None] > 0
        L = int(weights_BL.any(0).sum())
        windows.append([x[:, :L] for x in (batch["tokens_BL"], batch["next_BL"], weights_BL)])
        ends.append(ends[-1] + L)
        continues.append(bool(batch["continues_B"].any()))
    tokens_BT, next_BT, weights_BT = (np.concatenate(x, 1) for x in zip(*windows, strict=True))
    return {
        f"{split}/tokens_BT": tokens_BT,
        f"{split}/next_BT": next_BT,
        f"{split}/weights_BT": weights_BT,
        f"{split}/ends_S": np.array(ends[1:]),
        f"{split}/continues_S": np.array(continues),
    }


def describe_evaluation(entry: Mapping[str, float]) -> str:
    """Returns the losses of an evaluation and their perplexities in a line."""
    texts = {name: x for name, x in entry.items() if name not in ("step", "seconds")}
    scores = "  ".join(
        f"{name}/loss {x:.4f} {name}/perplexity {math.exp(x):.2f}" for name, x in texts.items()
    )
    return f"step {entry['step']}: {scores}"


if __name__ == "__main__":
    cli.run(main, recipe=["seed", "batches.name", "batches.B", "model.name", "optim.lr"])
