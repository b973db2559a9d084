"""Times published sizes on one GPU, a contender at a time:  python -m benchmarks.gpu runs/gpu

GPT-2 124M, BERT-large, XLNet-base and ELMo beside PyTorch's forms of them, compiled and not.  Each
contender has the card to itself and leaves a file in the folder.  Those that have one are not timed
again, so that the same command goes on where it was stopped: delete a file to repeat its contender.

    --only=gpt2,bert    these contests, or single contenders, as gpt2-sdpa
    --within=9          minutes: starts none after these; one that still runs then is stopped
    --trace             keeps a profile of each contender's step, too
    --retry             times again those that failed
    --peer_python=...   the Python that has torch and transformers, if this one has not

Of several cards the first of CUDA_VISIBLE_DEVICES is timed.
"""

import math
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from absl import flags

from benchmarks.contest import options, sections, table
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
RETRY = flags.DEFINE_bool("retry", False, "Time again the contenders that failed.")
TRACE = flags.DEFINE_bool("trace", False, "Keep a profile of a step of each contender.")

MATMUL = Entry("matmul", "benchmarks.contest.matmul")  # the ceiling
WIDTH = 20  # of a name, beside the table's
VISIBLE = "CUDA_VISIBLE_DEVICES"
CARD = "name,driver_version,clocks.sm,clocks.mem,power.draw,temperature.gpu"


def main(words: list[str]) -> None:
    if len(words) != 1:
        raise UsageError("name the folder of the results: python -m benchmarks.gpu runs/gpu")
    check_machine(CONTESTS)
    folder = Path(words[0])
    folder.mkdir(parents=True, exist_ok=True)
    run_contests(CONTESTS, folder)
    print("\n".join(tabulate(CONTESTS, folder)))


def check_machine(contests: Mapping[str, Contest]) -> None:
    """Leaves one card to all contenders, and checks that they can begin.

    Raises:
        UserError: there is no card, or a peer is to be timed and its packages are missing.
    """
    os.environ[VISIBLE] = os.environ.get(VISIBLE, "0").split(",")[0]
    if not read_card():
        raise UserError("nvidia-smi names no card: benchmarks.step times what a CPU does")
    peers = [x for _, x in list_contenders(contests, ONLY.value).values() if not is_of_jax(x)]
    if peers:
        options.check_peer_packages()


def is_of_jax(entry: Entry) -> bool:
    """Checks whether a contender is JAX's: ours, or the ceiling."""
    return entry.module in (OURS, MATMUL.module)


def run_contests(contests: Mapping[str, Contest], folder: Path) -> None:
    """Times the contenders that have no file yet, as far as the time goes."""
    every = list_contenders(contests, ONLY.value)
    names = [name for name in every if not is_done(folder / f"{name}.json")]
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


def is_done(file: Path) -> bool:
    """Checks whether a contender has its file, and need not be tried again."""
    return file.exists() and not (RETRY.value and "error" in read_json(file))


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
    python = sys.executable if is_of_jax(entry) else PEER_PYTHON.value
    cards = [read_card()]
    try:
        player = Player(entry.name, entry.module, about, python, seconds=seconds)
        with closing(player):
            if cards[0] and player.facts.get("device") == "cpu":
                return about | {
                    "error": f"{entry.name}: {python} computes on the CPU, not the card"
                }
            play([player], ROUNDS.value, STEPS.value)
            about["cards"] = [*cards, read_card()]
            result = table.summarise(player, "wall") | about
            if TRACE.value and entry is not MATMUL:
                result |= profile(player, trace)
    except UserError as error:
        return about | {"error": str(error)}
    return result | {"tokens": config.batches.B * config.batches.L}


def profile(player: Player, folder: Path) -> dict[str, str]:
    """Keeps a profile of a step; what keeps it from being made costs no figures."""
    try:
        player.profile(1, folder)
    except UserError as error:
        return {"trace_error": str(error)}
    return {}


def read_card() -> str:
    """Reads the card's name, driver, clocks, power and temperature; "": there is none."""
    query = ["nvidia-smi", "-i", os.environ.get(VISIBLE, "0"), f"--query-gpu={CARD}"]
    query.append("--format=csv,noheader")
    try:
        done = subprocess.run(query, capture_output=True, text=True)
    except OSError:
        return ""
    return "" if done.returncode else done.stdout.strip()


def tabulate(contests: Mapping[str, Contest], folder: Path) -> Iterator[str]:
    """Yields a table of each contest of which the folder has files."""
    for name, contest in contests.items():
        files = {x.name: folder / f"{name}-{x.name}.json" for x in (MATMUL, *contest.entries)}
        results = {x: read_json(path) for x, path in files.items() if path.exists()}
        ceiling = results.pop(MATMUL.name, {})
        if results:
            changes = ", ".join(f"{key}={value}" for key, value in contest.changes.items())
            yield f"{contest.recipe}  {changes}".rstrip()
            yield from describe_machines({**results, MATMUL.name: ceiling})
            yield f"{'':{WIDTH}}{table.HEAD}   times ours"
            timed = (results.get(x.name, {}) for x in contest.entries if x.module == OURS)
            ours: dict[str, Any] = next((x for x in timed if "step_s" in x), {})
            yield from (format_result(x, y, ours, ceiling) for x, y in results.items())


def describe_machines(results: Mapping[str, dict]) -> Iterator[str]:
    """Yields lines about the card, the versions, and the speed of which MFU is a share."""
    cards = {x["cards"][0].partition(",")[0] for x in results.values() if any(x.get("cards", ()))}
    versions = {f"{x} {y[x]}" for y in results.values() for x in ("jax", "torch") if x in y}
    if known := [*sorted(cards), *sorted(versions)]:
        yield ", ".join(known) + "; figures of several cards do not compare" * (len(cards) > 1)
    if top := measure_ceiling(results[MATMUL.name]):
        yield f"MFU is a share of what large products reach there, {top / 1e12:,.0f} TFLOP/s"


def measure_ceiling(result: dict) -> float:
    """Computes the FLOP/s of large products; 0: they were not timed."""
    return result["flops"] / result["step_s"]["median"] if "step_s" in result else 0.0


def format_result(name: str, result: dict, ours: dict, ceiling: dict) -> str:
    """Formats a line: that of `table.row`, and its step in steps of ours.

    Args:
        ours: the first of our entries that was timed; {}: none was.
    """
    if "error" in result:
        return f"{name:{10 + WIDTH}}{result['error']}"
    median = result["step_s"]["median"]
    # The model's FLOPs, as ours counts them, whoever computes them.
    rate, top = ours.get("flops", 0.0) / median, measure_ceiling(ceiling) or math.inf
    line = table.row("", result | {"utilisation": {"median": rate / top}}, result["tokens"])
    ratio = f"   {median / ours['step_s']['median']:.2f}" if ours else ""
    begin, *_, end = result["losses"]
    doubts = "" if end < begin else "   its loss does not fall"
    # Forms of one model begin alike, whichever kernel computes them.
    if "flops" in result and not math.isclose(begin, ours["losses"][0], rel_tol=0.05):
        doubts += "   it begins with another loss"
    return f"{name:{WIDTH}}{line}{ratio}{doubts}"


if __name__ == "__main__":
    cli.run(main, has_words=True)
