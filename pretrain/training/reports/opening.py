"""The first lines of a run: what it computes on, how much it trains, and for how long."""

from collections.abc import Sequence

import jax

from pretrain.data.batches.loader import list_phases
from pretrain.distributed.sharding import Layout
from pretrain.runtime.progress import format_count
from pretrain.training.state_sizes import count_device_bytes, count_numbers
from pretrain.training.train_state import State


def describe_run(
    like: State,
    layout: Layout,
    train,
    steps: int,
    workdir,
    resumed: int | None,
    notes: Sequence[str] = (),
) -> str:
    """Describes a run in lines for a person, before its first step.

    Args:
        like: the state, as jax.ShapeDtypeStructs with their shardings.
        layout: of the state and the batches on the devices.
        train: what is trained on, a layout of batches or two in turn.
        steps: that the run takes.
        resumed: the step that a resumed run goes on from; None: it is new.
        notes: further lines.
    """
    begin = "beginning at step 0" if resumed is None else f"continuing from step {resumed}"
    devices = list(layout.mesh.devices.flat)
    axes = " ".join(f"{axis}={size}" for axis, size in layout.mesh.shape.items())
    over = f" of {jax.process_count()} processes" if jax.process_count() > 1 else ""
    size = format_count(count_device_bytes(like))
    epochs = f"{count_epochs(train, steps):.3g} epochs"
    lines = [
        f"{len(devices)} x {devices[0].device_kind}{over}, mesh {axes}",
        f"{count_numbers(like.params):,} parameters; with the optimizer {size}B on each device, "
        "activations not counted",
        f"{steps:,} steps of {_describe_tokens(train)} tokens: "
        f"{'1 epoch' if epochs == '1 epochs' else epochs}",
        f"{begin} in {workdir}; {describe_compiling(train, resumed or 0, steps)}",
        *notes,
    ]
    return "\n".join(lines)


def describe_compiling(train, start: int, steps: int) -> str:
    """Says which of the steps from `start` on wait for a compiler."""
    later = ""
    if len({(x.B, x.L) for x in list_phases(train)}) > 1 and start < train.steps < steps:
        later = f", and so does step {train.steps + 1:,}, which has other rows"
    return f"the first step compiles, which can take a minute{later}"


def count_epochs(train, steps: int) -> float:
    """Counts how often a run reads its text or its examples."""
    *first, last = list_phases(train)
    early = min(train.steps, steps) if first else 0
    epochs = early / first[0].steps_per_epoch if first else 0.0
    return epochs + (steps - early) / last.steps_per_epoch


def _describe_tokens(train) -> str:
    sizes = dict.fromkeys(f"{data.B * data.L:,}" for data in list_phases(train))
    return ", later ".join(sizes)
