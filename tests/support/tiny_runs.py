"""A run so small that a whole process of it costs seconds: every objective's recipe, shrunk.

It is itself a recipe file:  python -m pretrain.main --config=tests/support/tiny_runs.py:plm
A new objective joins every test of the machine with a function in `RECIPES`.
"""

import json
import os
import pathlib
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

import jax
import numpy as np
import pytest
from ml_collections import ConfigDict

import modules
from configs import awd_lstm, bert, common, elmo, gpt2, xlnet
from pretrain import objectives
from pretrain.data import batches, prepare
from pretrain.data.batches import phases
from pretrain.training import loop
from pretrain.training.recipe_hooks import build_hooks
from pretrain.training.reports import metrics_file
from tests.support import commands, corpora, shared_steps

ROOT = pathlib.Path(__file__).parents[2]
STEPS = 6
RATES = {"steps_per_s", "tokens_per_s", "data_wait", "goodput", "seconds"}  # depend on the clock
TOTALS = {"tokens", "flops"}  # of every line

# --- recipes ---------------------------------------------------------------------------------


def get_config(preset: str) -> ConfigDict:
    """The toy recipe of this objective."""
    return common.choose(preset, RECIPES | MORE)


def plm() -> ConfigDict:
    """XLNet with everything a resume could forget: memory, both ways, dropout, spans."""
    config = xlnet.get_config("mini")
    config.batches.update(B=8, L=32, reuse_len=16)
    config.model.update(D=16, H=2, K=8, N=2, F=32, M=16)
    config.model.update(dropout=0.1, attention_dropout=0.1)
    config.objective.perm_size = 16
    config.execution.unroll = 1
    return shared(config)


def mlm() -> ConfigDict:
    """BERT in two phases, with dropout, whole words and next sentences."""
    config = bert.get_config("mini")
    config.batches.update(B=8, L=32)
    config.first_phase = dict(share=0.5, L=24)
    config.evals = dict(held_out=dict(split="held_out"))
    config.model.update(D=16, H=2, K=8, N=2, F=32, L=32)
    config.model.update(dropout=0.1, attention_dropout=0.1)
    config.objective.update(whole_word_mask=True, max_gram=2)
    config.execution.unroll = 1
    return shared(config)


def packed() -> ConfigDict:
    """BERT with several pairs in a row."""
    config = mlm()
    config.batches.update(L=48, pack=3)
    config.first_phase = dict(share=0.0, L=24)
    config.model.L = 48
    return config


def clm() -> ConfigDict:
    """GPT-2 with dropout and a banded layer."""
    config = gpt2.get_config("mini")
    config.batches.update(B=8, L=32)
    config.model.update(D=16, H=2, K=8, N=2, F=32, L=32, window=8)
    config.model.update(dropout=0.1, attention_dropout=0.1)
    config.execution.unroll = 1
    return shared(config, sentences="whole", V=270)


def bilm() -> ConfigDict:
    """ELMo with states that go on, sampled words and dropout."""
    config = elmo.get_config("mini")
    config.batches.update(B=8, L=8, characters=10)
    config.model.update(V=60, D=16, U=24, E=4, filters=((1, 4), (2, 8)), dropout=0.1)
    config.objective.samples = 20
    return shared(config, V=0)


def awd() -> ConfigDict:
    """The AWD-LSTM with states that go on, every dropout and an average."""
    config = awd_lstm.get_config("mini")
    config.batches.update(B=8, L=12, bptt=8, std=2.0)
    config.corpus.tokens.types = 60
    config.model.update(D=16, U=24, N=2, dropoute=0.1, dropouti=0.1, dropouth=0.1, wdrop=0.1)
    return shared(config, V=0)


def shared(config: ConfigDict, sentences: str = "line", V: int = 120) -> ConfigDict:
    """What all toys have in common; V: pieces of the vocabulary, where it has a size."""
    config.corpus.update(documents="blank", sentences=sentences, held_out=0.2)
    if V:
        config.corpus.tokens.V = V
    config.evals.held_out.B = 8
    config.optim.update(lr=1e-2, steps=STEPS, warmup=2)
    config.train.update(log_every=1, eval_every=3, eval_batches=2, save_every=2)
    return config


RECIPES = {"plm": plm, "mlm": mlm, "clm": clm, "bilm": bilm}
MORE = {"awd": awd, "packed": packed}  # others with one of these objectives: of few tests


def quickly(*names: str) -> list:
    """All recipes, of which only these are of `make test`; the others of `make test-slow`."""
    slow = pytest.mark.slow
    return [name if name in names else pytest.param(name, marks=slow) for name in RECIPES]


# Where one recipe shows what all share, it is the quickest of those that keep something between
# batches.
ONE = quickly("bilm")
QUICKEST = quickly("clm")  # where it is of processes


# --- in this process -------------------------------------------------------------------------


def build(config: ConfigDict):
    """(objective, training layout, held-out layouts) of a recipe, as `pretrain.main` has them."""
    corpus = prepare.prepare(**config.corpus)
    backbone, special = (
        modules.build(**config.model, execution=config.execution),
        corpus.tokenizer.special,
    )
    objective = objectives.build(
        backbone=backbone,
        head=config.get("head"),
        special=special,
        execution=config.execution,
        **config.objective,
    )
    train = phases.build_training(
        corpus, config.seed, config.optim.steps, config.batches, config.get("first_phase")
    )
    evals = {
        name: batches.build(corpus=corpus, **{**config.batches, **changes})
        for name, changes in config.evals.items()
    }
    return objective, train, evals


def train(config: ConfigDict, workdir: pathlib.Path, **options):
    """The final state of a run in this process, on one device."""
    with shared_steps.train_on(1):
        hooks = build_hooks(config.get("hooks", {}))
        return loop.run(config, workdir, *build(config), extra_hooks=hooks, **options).state


def written(workdir: pathlib.Path) -> list[dict]:
    """The lines of metrics.jsonl without totals and what the clock wrote into them."""
    lines = metrics_file.read_lines(workdir / "metrics.jsonl")
    return [{k: v for k, v in line.items() if k not in RATES | TOTALS} for line in lines]


def write_held_out(config: ConfigDict, path: pathlib.Path) -> pathlib.Path:
    """Writes the documents that a toy recipe holds out, as a text of their own."""
    corpus = prepare.prepare(**config.corpus)
    text = pathlib.Path(config.corpus.source.removeprefix("text:")).read_text()
    documents = text.strip().split("\n\n")
    assert len(documents) == len(corpus.splits["all"])
    path.write_text("\n\n".join(documents[i] for i in corpus.splits["held_out"]) + "\n")
    return path


def assert_same(one, other) -> None:
    """Bit for bit, and of the same structure."""
    jax.tree.map(np.testing.assert_array_equal, jax.device_get(one), jax.device_get(other))


def assert_sharded_like(x: jax.Array, like) -> None:
    """Every device has its shard of an array, and no more."""
    assert x.sharding.is_equivalent_to(like.sharding, x.ndim)
    shape = like.sharding.shard_shape(x.shape)
    assert {shard.data.shape for shard in x.addressable_shards} == {shape}


# --- as a user at the keyboard ---------------------------------------------------------------


class Toy:
    """A corpus in a folder, and commands that train on it."""

    def __init__(self, folder: pathlib.Path):
        self.text, self.cache = folder / "a.txt", folder / "data"
        self.text.write_text(corpora.prose(0, sentences=96, per_paragraph=12))
        self.begun: list[subprocess.Popen | commands.Process] = []

    def config(self, recipe: str, changes: dict | None = None) -> ConfigDict:
        """A toy recipe on this corpus, with `changes` like {"optim.lr": 0.1}."""
        config = get_config(recipe)
        config.update_from_flattened_dict(self.fields() | (changes or {}))
        return config

    def fields(self) -> dict:
        return {"corpus.source": f"text:{self.text}", "corpus.cache": str(self.cache)}

    def command(self, recipe: str, workdir: pathlib.Path, changes: dict | None = None, *more: str):
        """The command that trains, as a list of words; `more` are further flags."""
        recipe = recipe if ".py" in recipe else f"tests/support/tiny_runs.py:{recipe}"
        fields = self.fields() | (changes or {})
        flags = [f"--config.{name}={value}" for name, value in fields.items()]
        first = [sys.executable, "-m", "pretrain.main", f"--config={recipe}"]
        return [*first, f"--workdir={workdir}", *flags, *more]

    def environment(self, devices: int = 1, **more: str) -> dict[str, str]:
        """As the tests' own, but for the number of devices."""
        eight, own = (f"device_count={count}" for count in (8, devices))
        flags = os.environ["XLA_FLAGS"].replace(eight, own)
        return os.environ | {"XLA_FLAGS": flags} | more

    def start(self, *words, devices: int = 1, **more: str) -> commands.Process:
        """`command(*words)`, running; what it says on stderr can be read from the process."""
        return self.begin(self.command(*words), devices, **more)

    def begin(self, command: list, devices: int, **more: str):
        """Any command in the environment of toy runs."""
        environment = self.environment(devices, **more)
        if command[0] == sys.executable:
            self.begun.append(commands.Process(command, environment))
        else:
            pipes = dict(stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            self.begun.append(subprocess.Popen(command, cwd=ROOT, env=environment, **pipes))
        return self.begun[-1]

    def together(self, command: list, count: int = 2, devices: int = 2) -> list:
        """A command as so many processes of one run, each with so many devices."""
        if count == 1:
            return [self.begin(command, devices)]
        whole = {"JAX_COORDINATOR_ADDRESS": free_address(), "JAX_NUM_PROCESSES": str(count)}
        return [
            self.begin(command, devices, JAX_PROCESS_ID=str(number), **whole)
            for number in range(count)
        ]

    def run(self, *words, devices: int = 1) -> subprocess.CompletedProcess:
        """`command(*words)`, to its end."""
        return commands.run(*self.command(*words)[1:], environment=self.environment(devices))


@pytest.fixture(scope="session")
def toy(tmp_path_factory) -> Iterator[Toy]:
    """The corpus of all toy runs of a session."""
    toy = Toy(tmp_path_factory.mktemp("toy"))
    yield toy
    for process in toy.begun:  # those that a failure has left
        process.kill()


def free_address() -> str:
    """A host and a port where nobody listens."""
    with socket.socket() as s:
        s.bind(("localhost", 0))
        return f"localhost:{s.getsockname()[1]}"


def wait_for(happened, process) -> None:
    """Returns as soon as `happened()`; fails if the process has ended before."""
    while not happened():
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.02)


def finish(process, code: int = 0) -> str:
    """What a process said until it ended with this exit code."""
    _, said = process.communicate()
    assert process.returncode == code, said
    return said


# --- what a run has left ---------------------------------------------------------------------


def checkpoints(workdir: pathlib.Path) -> list[int]:
    """The steps of the finished checkpoints of a run."""
    names = [path.name for path in (workdir / "checkpoints").glob("*")]
    return sorted(int(name) for name in names if re.fullmatch(r"\d+", name))


def sums(workdir: pathlib.Path, step: int) -> dict[str, dict]:
    """Shape, type and checksum of every leaf of a checkpoint: equal if all bits are."""
    path = workdir / "checkpoints" / str(step) / "record" / "metadata"
    return json.loads(path.read_text())["leaves"]


def past(workdir: pathlib.Path, step: int) -> bool:
    """Is this step saved, and all that belongs to it written?"""
    return step in checkpoints(workdir) and written(workdir)[-1]["step"] > step
