"""Times published sizes on one GPU, a contender at a time:  python -m benchmarks.gpu runs/gpu

GPT-2 124M, BERT-large, XLNet-base and ELMo beside PyTorch's forms of them, compiled and not.  Each
contender has the card to itself and leaves a file in the folder.  Those that have one are not timed
again, so that the same command goes on where it was stopped: delete a file to repeat its contender.

    --only=gpt2,bert    these contests, or single contenders, as gpt2-sdpa
    --within=9          minutes: starts none after these; one that still runs then is stopped
    --trace             keeps a profile of each contender's step, too
    --peer_python=...   the Python that has torch and transformers, if this one has not
"""

import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from absl import flags

from benchmarks.contest import sections, table
from benchmarks.contest.options import PEER_PYTHON, THREADS
from benchmarks.contest.published_sizes import CONTESTS, OURS, Contest, Entry
from benchmarks.contest.runner import Player, play
from benchmarks.step import ROUNDS, STEPS
from pretrain import cli
from pretrain.runtime import progress, recipe_files
from pretrain.runtime.errors import UsageError, UserError
from pretrain.runtime.json_files import read_json, write_json

for name in ("peer_python", "threads", "rounds", "steps"):
    flags.declare_key_flag(name)
ONLY = flags.DEFINE_list("only", [], "Contests, or contenders, as gpt2-sdpa; none: all.")
WITHIN = flags.DEFINE_float("within", 0, "Minutes for all contenders; 0: as many as it takes.", 0)
TRACE = flags.DEFINE_bool("trace", False, "Keep a profile of a step of each contender.")

MATMUL = Entry("matmul", "benchmarks.contest.matmul")  # the ceiling
WIDTH = 20  # of a name, beside the table's
CARD = "name,driver_version,clocks.sm,clocks.mem,power.draw,temperature.gpu"


def main(words: list[str]) -> None:
    if len(words) != 1:
        raise UsageError("name the folder of the results: python -m benchmarks.gpu runs/gpu")
    folder = Path(words[0])
    folder.mkdir(parents=True, exist_ok=True)
    run_contests(CONTESTS, folder)
    print("\n".join(tabulate(CONTESTS, folder)))


def run_contests(contests: Mapping[str, Contest], folder: Path) -> None:
    """Times the contenders that have no file yet, as far as the time goes."""
    every = list_contenders(contests, ONLY.value)
    names = [name for name in every if not (folder / f"{name}.json").exists()]
    deadline = time.monotonic() + 60 * WITHIN.value
    for number, name in enumerate(names, 1):
        left = deadline - time.monotonic() if WITHIN.value else 0.0
        if left < 0:
            break
        progress.say(f"{number} of {len(names)}: {name}")
        result = measure(*every[name], folder / name, left)
        # The next call begins with it.  One that had all of the time would never be done.
        if "error" in result and WITHIN.value and time.monotonic() > deadline and number > 1:
            break
        write_json(folder / f"{name}.json", result)


def list_contenders(
    contests: Mapping[str, Contest], only: list[str]
) -> dict[str, tuple[Contest, Entry]]:
    """Lists contenders by name, each contest's ceiling first.

    Args:
        only: contests and contenders; []: all.

    Raises:
        UserError: there is none of a name.
    """
    every = {
        f"{name}-{entry.name}": (contest, entry)
        for name, contest in contests.items()
        for entry in (MATMUL, *contest.entries)
    }
    if unknown := set(only) - set(contests) - set(every):
        raise UserError(f"--only={min(unknown)}: there are {', '.join([*contests, *every])}")
    # Without names, all: every contender is of a contest.
    chosen = set(only or contests)
    return {name: x for name, x in every.items() if {name, name.partition("-")[0]} & chosen}


def measure(contest: Contest, entry: Entry, trace: Path, seconds: float) -> dict[str, Any]:
    """Times a contender; what keeps it from running is its result, too.

    Args:
        trace: folder for its profile.
        seconds: after which it is stopped; 0: it is not.
    """
    config = recipe_files.load(recipe_files.find(contest.recipe))
    config.update_from_flattened_dict({**contest.changes, **entry.changes})
    about = {
        "recipe": sections.freeze_recipe(config),
        "threads": THREADS.value,
        "variant": entry.variant,
        "compile": entry.compile,
        "dtype": entry.dtype,
    }
    python = sys.executable if entry.module in (OURS, MATMUL.module) else PEER_PYTHON.value
    cards = [read_card()]
    try:
        player = Player(entry.name, entry.module, about, python, seconds=seconds)
        with closing(player):
            play([player], ROUNDS.value, STEPS.value)
            cards.append(read_card())
            if TRACE.value and entry is not MATMUL:
                player.profile(1, trace)
    except UserError as error:
        return about | {"error": str(error)}
    tokens = config.batches.B * config.batches.L
    return table.summarise(player, "wall") | about | {"tokens": tokens, "cards": cards}


def read_card() -> str:
    """Reads the card's name, driver, clocks, power and temperature; "": there is none."""
    query = ["nvidia-smi", f"--query-gpu={CARD}", "--format=csv,noheader"]
    try:
        return subprocess.run(query, capture_output=True, text=True).stdout.strip()
    except OSError:
        return ""


def tabulate(contests: Mapping[str, Contest], folder: Path) -> Iterator[str]:
    """Yields a table of each contest of which the folder has files."""
    for name, contest in contests.items():
        files = {x.name: folder / f"{name}-{x.name}.json" for x in (MATMUL, *contest.entries)}
        results = {x: read_json(path) for x, path in files.items() if path.exists()}
        ceiling = results.pop(MATMUL.name, {})
        if results:
            changes = ", ".join(f"{key}={value}" for key, value in contest.changes.items())
            yield f"{contest.recipe}  {changes}".rstrip()
            yield f"{'':{WIDTH}}{table.HEAD}   times ours"
            first = results.get(contest.entries[0].name, {})
            yield from (format_result(x, y, first, ceiling) for x, y in results.items())


def format_result(name: str, result: dict, first: dict, ceiling: dict) -> str:
    """Formats a line: that of `table.row`, and its step in steps of ours."""
    if "error" in result:
        return f"{name:{10 + WIDTH}}{result['error']}"
    median = result["step_s"]["median"]
    # The model's FLOPs, as ours counts them, whoever computes them.
    rate = first.get("flops", 0.0) / median
    top = ceiling["flops"] / ceiling["step_s"]["median"] if "step_s" in ceiling else float("inf")
    line = table.row("", result | {"utilisation": {"median": rate / top}}, result["tokens"])
    ratio = f"   {median / first['step_s']['median']:.2f}" if "step_s" in first else ""
    begin, *_, end = result["losses"]
    return f"{name:{WIDTH}}{line}{ratio}{'' if end < begin else '   its loss does not fall'}"


if __name__ == "__main__":
    cli.run(main, has_words=True)
