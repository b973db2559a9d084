"""Compile a recipe's training step for chips that are not here, to know before renting:

    python -m pretrain.compile --config=configs/xlnet.py:large --topology=v5p:4x4x4
    python -m pretrain.compile --config=configs/gpt2.py:124m --topology=h100:1 --config.batches.B=32

prints, for each chip, what its memory is for, its collectives, its work and how long a step takes
at least.  It needs the compiler, `pip install libtpu` or `pip install 'jax[cuda12]'`, but no chip
and no text.  Exit code 1, with the compiler's line, where the step does not fit.  --by_line tells
which lines of source the time is for.  --search tries meshes, remat and batch sizes and prints
those that fit, the quickest first; --fit looks for the most rows that fit with each remat.
"""

import functools
import re

import jax
from absl import flags

from pretrain import cli
from pretrain.aot import mesh_search, roofline, source_lines, step_memory, topologies
from pretrain.aot.chips import Slice
from pretrain.aot.custom_calls import count_calls
from pretrain.aot.hlo_cost import list_saved_activations
from pretrain.aot.mesh_search import Candidate, Outcome, refuse_size
from pretrain.aot.roofline import Estimate
from pretrain.aot.step_memory import Step
from pretrain.distributed.sharding import AXES
from pretrain.runtime.errors import UserError
from pretrain.runtime.progress import say
from pretrain.training.state_sizes import count_device_bytes

flags.declare_key_flag("config")
TOPOLOGY = flags.DEFINE_string("topology", None, "Chips: v5e:4x4, v5p:4x4x4, h100:8.")
BY_LINE = flags.DEFINE_bool("by_line", False, "Tell which lines of source the time is for.")
FIT = flags.DEFINE_bool("fit", False, "Look for the most rows that fit, with each remat.")
SEARCH = flags.DEFINE_bool("search", False, "Try meshes, remat and batch sizes.")
MINUTES = flags.DEFINE_float("minutes", 60, "How long --search and --fit go on.")
GIB = 2**30


def main(config) -> int:
    """Compiles the step of every phase, or searches.

    Returns:
        The exit code: 0, or 1 if a search finds nothing that fits.

    Raises:
        UserError: the step does not fit.
    """
    jax.config.update("jax_platforms", "cpu")  # whatever there is: these chips are described
    place = topologies.parse_topology(TOPOLOGY.value)
    if SEARCH.value or FIT.value:
        look = mesh_search.fit_rows if FIT.value else mesh_search.search
        candidate = functools.partial(compile_candidate, config, place)
        outcomes = look(config, len(place.devices), MINUTES.value, say, candidate)
        print("\n".join(mesh_search.format_table(outcomes)))
        return int(not any(x.seconds for x in outcomes))
    steps = step_memory.build_steps(config, place)
    compiled = [
        step_memory.compile_step(steps, data, place)
        for data in step_memory.build_batch_shapes(config)
    ]
    for step in compiled:
        work = roofline.estimate(step.program, place, list(steps.layout.mesh.devices.flat))
        print("\n".join(describe_step(step, work, place)), end="\n\n")
        if BY_LINE.value:
            shares = source_lines.list_shares(step.program, place.chip)
            print("\n".join(source_lines.format_table(shares)), end="\n\n")
    # After all are shown: of a step that does not fit the numbers say by how much.
    if refused := [step.refusal for step in compiled if step.refusal]:
        raise UserError("does not fit: " + "; ".join(refused))
    return 0


def compile_candidate(config, target: Slice, candidate: Candidate) -> Outcome:
    # A copy: the values of one candidate must not reach the next.
    config = config.copy_and_resolve_references()
    config.mesh.update(dict(zip(AXES, candidate.mesh, strict=True)))
    config.batches.B = candidate.B
    if candidate.remat:
        config.execution.remat = candidate.remat
    try:
        steps = step_memory.build_steps(config, target)
        # The state's size is known without compiling, which takes minutes.
        if (size := count_device_bytes(steps.like)) > target.chip.memory:
            return refuse_size(candidate, f"the state alone takes {size / 2**30:.0f} GiB")
        data = step_memory.build_batch_shapes(config)[-1]
        step = step_memory.compile_step(steps, data, target)
    except UserError as error:
        return Outcome(candidate, why=str(error))
    if step.refusal:
        needed = re.search(r"\(([\d.]+\w)\) exceeds", step.refusal)
        return refuse_size(candidate, f"it takes {needed[1]}" if needed else step.refusal)
    mesh = steps.layout.mesh
    seconds = roofline.estimate(step.program, target, list(mesh.devices.flat)).seconds
    # Per chip, so that slices of different sizes compare.
    tokens = step.data.B * step.data.L / mesh.size
    share = step.flops / (seconds * target.chip.peak)
    return Outcome(candidate, seconds, sum(step.memory.values()), tokens / seconds, share)


def describe_step(step: Step, work: Estimate, place: Slice) -> list[str]:
    mesh = step.steps.layout.mesh
    over = " ".join(f"{axis}={size}" for axis, size in mesh.shape.items())
    return [
        f"{step.data.B} rows of {step.data.L} tokens on {place.name}: {mesh.size} chips, {over}; "
        f"{step_memory.count_parameters(step.steps):,} parameters; "
        f"compiled in {step.seconds:.0f} s",
        *_memory(step, place),
        *_collectives(work),
        *_calls(step),
        *([] if step.refusal else _work(step, work, place)),
    ]


def _memory(step: Step, place: Slice) -> list[str]:
    lines = [f"memory of a chip, GiB{place.chip.memory / GIB:>16.2f}"]
    for name, size in step.memory.items():
        whole = step.whole.get(name, 0)
        note = f"   every chip has {whole / GIB:.3f} of it whole" if whole else ""
        note = _largest(step) if name == "activations" else note
        lines += [f"  {name:<20}{size / GIB:>14.3f}{note}"] if size else []
    if step.refusal:
        return [*lines, f"  {'total':<20}{'does not fit':>14}"]
    total = sum(step.memory.values())
    share = f"   {total / place.chip.memory:.0%}: fits"
    return [*lines, f"  {'total':<20}{total / GIB:>14.3f}{share}"]


def _largest(step: Step) -> str:
    largest = sorted(list_saved_activations(step.program), key=lambda x: -x.bytes)[:3]
    return "   such as " + ", ".join(map(str, largest)) if largest else ""


def _collectives(work: Estimate) -> list[str]:
    lines = [f"collectives of a step{'times':>9}{'GiB made':>12}{'GiB received':>14}   largest"]
    for kind in sorted({x.kind for x in work.collectives}):
        same = [x for x in work.collectives if x.kind == kind]
        count = sum(x.count for x in same)
        size = sum(x.count * x.bytes for x in same) / GIB
        received = sum(x.count * x.bytes_received for x in same) / GIB
        largest = max((array for x in same for array in x.arrays), key=lambda x: x.unpadded_bytes)
        lines.append(f"  {kind:<20}{count:>8.0f}{size:>12.3f}{received:>14.3f}   {largest}")
    return lines if len(lines) > 1 else ["no collectives"]


def _calls(step: Step) -> list[str]:
    calls = count_calls(step.program)
    return ["calls of libraries"] * bool(calls) + [
        f"  {name:<40}{count:>8.0f}" for name, count in sorted(calls.items())
    ]


def _work(step: Step, work: Estimate, place: Slice) -> list[str]:
    chip, tokens = place.chip, step.data.B * step.data.L / step.steps.layout.mesh.size
    share = step.flops / (work.seconds * chip.peak)
    return [
        "work of a chip in a step",
        f"  launches            {work.launches:>14,.0f} operations, one after the other",
        f"  model               {step.flops / 1e12:>14.3f} TFLOP, products of the recipe's sizes",
        f"  compiled            {work.flops / 1e12:>14.3f} TFLOP{_trust(step, work)}",
        f"  memory traffic      {work.bytes_accessed / 1e9:>14.3f} GB",
        f"  intensity           {work.flops / max(work.bytes_accessed, 1):>14.0f} FLOP/byte; "
        f"{chip.peak / chip.bandwidth:.0f} keep this chip's products busy",
        "a step takes at least",
        f"  products            {work.products_seconds * 1e3:>14.2f} ms at "
        f"{chip.peak / 1e12:.0f} TFLOP/s",
        f"  memory              {work.memory_seconds * 1e3:>14.2f} ms at "
        f"{chip.bandwidth / 1e9:.0f} GB/s",
        f"  each operation      {work.operations_seconds * 1e3:>14.2f} ms, the longer of its two",
        f"  collectives         {work.links_seconds * 1e3:>14.2f} ms beside it, at "
        f"{chip.link / 1e9:.0f} GB/s of a link, one way",
        f"  together            {work.seconds * 1e3:>14.2f} ms: {tokens / work.seconds:,.0f} "
        f"tokens/s of a chip, {share:.0%} of its peak",
    ]


def _trust(step: Step, work: Estimate) -> str:
    """Returns a warning where the count of the program cannot be believed; else ""."""
    if work.flops < 0.9 * step.flops:
        return ": fewer than the model's, so some were not seen; do not trust it"
    if work.data_dependent_loops:
        where = "/".join(work.data_dependent_loops[0].split("/")[-2:])
        return f", a loop that ends when the data want taken once: {where}"
    return ""


if __name__ == "__main__":
    sections = ["seed", "batches.B", "batches.L", "model.name", "objective.name"]
    sections += ["optim.lr", "optim.steps", "train", "mesh"]
    cli.run(main, recipe=sections, required=["topology"])
