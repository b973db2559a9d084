"""Measures the train step of a recipe:  python -m benchmarks.step --config=configs/xlnet.py

Step time, tokens per second, compile time, peak memory, and the model FLOPs as a share of what
a product of large matrices reaches on this machine in the same minutes.  Text is random.

    --peer              beside the same step of the PyTorch references, in turns: as transformers
                        ships it ("hf") or one writes it ("plain"), and as quick as we can make it
    --peer_python=...   the Python that has torch and transformers, if this one has not
    --threads=1 --clock=cpu     for a machine that others use too
    --config.model.M=128        any value of the recipe, as in training
"""

import json
import math
import os
import sys
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

from absl import flags
from ml_collections import ConfigDict

from benchmarks.contest import options, sections, table
from benchmarks.contest.options import JSON, PEER_PYTHON, THREADS
from benchmarks.contest.runner import Player, play
from pretrain import cli
from pretrain.runtime.errors import UserError

flags.declare_key_flag("config")
flags.adopt_module_key_flags(options)
PEER = flags.DEFINE_bool("peer", False, "Measure the PyTorch references too.")
ROUNDS = flags.DEFINE_integer("rounds", 9, "How often each contender has its turn.", 1)
STEPS = flags.DEFINE_integer("steps", 3, "Steps of a turn.", 1)
CLOCK = flags.DEFINE_enum("clock", "wall", ["wall", "cpu"], "Seconds passed, or worked by CPUs.")

CLASSIFIERS = ("benchmarks.peers.fine_tuning", ("plain", "fast"))
PEERS = {  # by objective, or by the backbone, of a task above all: a module and its variants
    "plm": ("benchmarks.peers.xlnet", ("hf",)),
    "mlm": ("benchmarks.peers.bert", ("hf", "gathered")),
    "clm": ("benchmarks.peers.gpt2", ("hf", "sdpa")),
    "bilm": ("benchmarks.peers.elmo", ("cells", "nnlstm")),
    "text_cnn": CLASSIFIERS,
    "text_rcnn": CLASSIFIERS,
    "recurrent": CLASSIFIERS,
    "awd_lstm": ("benchmarks.peers.awd_lstm", ("nnlstm",)),
}
AS_SHIPPED = ("hf", "plain")  # the others keep freed memory


def main(config: ConfigDict) -> None:
    """Runs the contest and prints its table; the contenders' losses must agree and fall."""
    load = os.getloadavg()[0]
    if load > 1 and CLOCK.value == "wall":
        print(
            f"warning: a load of {load:.1f} before the start: wall-clock times and ratios are not "
            "to be trusted; --threads=1 --clock=cpu measures what others do not disturb",
            file=sys.stderr,
        )
    # Closed also where a later one cannot be built.
    with ExitStack() as stack:
        players = [stack.enter_context(closing(x)) for x in contenders(config)]
        play(players, ROUNDS.value, STEPS.value)
    report = results(config, players, load)
    if JSON.value:
        Path(JSON.value).write_text(json.dumps(report, indent=1))
    show(report)
    check(report)


def contenders(config: ConfigDict):
    """Yields ours, the ceiling and the peers, each started when the one before is warm."""
    recipe = sections.freeze_recipe(config)
    settings = {"recipe": recipe, "threads": THREADS.value}
    model = recipe["model"]["name"]
    named = model if "task" in recipe or model == "awd_lstm" else recipe["objective"]["name"]
    module, variants = peers_of(named) if PEER.value else ("", ())
    yield Player("ours", "benchmarks.contest.ours", settings)
    yield Player("matmul", "benchmarks.contest.matmul", settings)
    for name in variants:
        variant = settings | {"variant": name}
        yield Player(name, module, variant, PEER_PYTHON.value, keep_memory=name not in AS_SHIPPED)


def peers_of(name: str) -> tuple[str, tuple[str, ...]]:
    """Returns the module and variants of an objective's or a backbone's peer.

    Raises:
        UserError: there is none, or it cannot run.
    """
    if name not in PEERS:
        raise UserError(f"--peer: {name!r} has none; {', '.join(PEERS)} have")
    options.check_peer_packages()
    return PEERS[name]


def results(config: ConfigDict, players: list[Player], load: float) -> dict[str, Any]:
    clock, (ours, matmul, *peers) = CLOCK.value, players
    report: dict[str, Any] = {x.name: table.summarise(x, clock) for x in players}
    # A model FLOP share: the ceiling's FLOP/s over ours, in the same minutes.
    share = ours.facts["flops"] / matmul.facts["flops"]
    for player in (ours, *peers):
        used = [share * x for x in table.ratio(matmul, player, clock)]
        report[player.name]["utilisation"] = table.Spread(*used)._asdict()
    for peer in peers:
        report[f"{peer.name} / ours"] = table.ratio(peer, ours, clock)._asdict()
    return report | {
        "contenders": [x.name for x in (ours, *peers)],
        "device": f"{ours.facts['devices']} x {ours.facts['device']}",
        "load": [load, os.getloadavg()[0]],
        "flops_per_s": matmul.facts["flops"] / report["matmul"]["step_s"]["median"],
        "tokens": config.batches.B * config.batches.L,
        "recipe": json.loads(config.to_json_best_effort()),
        **{flag.name: flag.value for flag in (CLOCK, THREADS, STEPS, ROUNDS)},
    }


def show(report: dict[str, Any]) -> None:
    print(
        f"{report['device']}, {report['threads']} threads, {report['clock']} clock, "
        f"{report['rounds']} rounds of {report['steps']} steps of {report['tokens']} tokens, "
        f"load {report['load'][0]:.1f} -> {report['load'][1]:.1f}\n{table.HEAD}"
    )
    ours, *peers = report["contenders"]
    for name in (ours, *peers):
        print(table.row(name, report[name], report["tokens"]))
    print(f"matrix products reach {report['flops_per_s'] / 1e9:,.1f} GFLOP/s")
    for name in peers:
        print(table.versus(name, ours, report))


def check(report: dict[str, Any]) -> None:
    """Checks that no contender is quick by not working.

    Raises:
        UserError: a loss did not fall, or the contenders do not begin with the same.
    """
    begin = report["ours"]["losses"][0]
    for name in report["contenders"]:
        first, *_, last = report[name]["losses"]
        if not last < first:
            raise UserError(f"{name} does not train: its loss went from {first:.3f} to {last:.3f}")
        # All begin near the logarithm of the vocabulary, the loss of a uniform guess.
        if not math.isclose(first, begin, rel_tol=0.05):
            raise UserError(f"the first losses differ: {begin:.3f} of ours, {first:.3f} of {name}")


if __name__ == "__main__":
    cli.run(main, recipe=["batches.B", "batches.L", "model.name", "optim.lr"])
