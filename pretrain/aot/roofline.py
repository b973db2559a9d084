"""Estimates the least time of a compiled step: its roofline (Williams et al. 2009).

Latencies and elementwise work count as nothing: the real step is slower.
"""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

from pretrain.aot.chips import Chip, Slice
from pretrain.aot.collectives import Collective, find_collectives
from pretrain.aot.hlo import Instruction, Program
from pretrain.aot.hlo_cost import count_bytes_accessed, count_flops, count_launches


@dataclasses.dataclass(frozen=True)
class Estimate:
    """The work of one chip in a step, and the seconds that it takes at least.

    Attributes:
        launches: operations that it starts, one after the other; on a GPU its kernels.
        flops: operations of its matrix products.
        bytes_accessed: traffic of its main memory.
        products_seconds, memory_seconds: the time of each of the two alone.
        operations_seconds: the time of all operations, each in the longer of its two.
        links_seconds: the time of the collectives.
        data_dependent_loops: op_names of the loops that are counted as one iteration.
    """

    launches: float
    flops: float
    bytes_accessed: float
    products_seconds: float
    memory_seconds: float
    operations_seconds: float
    links_seconds: float
    collectives: tuple[Collective, ...]
    data_dependent_loops: tuple[str, ...]

    @property
    def seconds(self) -> float:
        # Collectives hide behind operations, at best entirely.
        return max(self.operations_seconds, self.links_seconds)


class Cost(NamedTuple):
    """An operation of a program, how often it runs in a step, and its work each time."""

    instruction: Instruction
    times: float
    flops: float
    bytes_accessed: float

    def seconds(self, chip: Chip) -> float:
        """Returns the least time of all its executions."""
        # Products at the chip's peak and traffic at full bandwidth overlap within an operation;
        # between two they do not.
        return self.times * max(self.flops / chip.peak, self.bytes_accessed / chip.bandwidth)


def list_costs(program: Program) -> list[Cost]:
    return [
        Cost(i, times, count_flops(program, name, i), count_bytes_accessed(program, name, i))
        for name, times in program.executions()
        for i in program.computations[name].values()
    ]


def estimate(program: Program, target: Slice, devices: Sequence) -> Estimate:
    """Estimates a program on a slice; `devices` are in the order of its mesh."""
    chip, costs = target.chip, list_costs(program)
    collectives = tuple(find_collectives(program, len(devices)))
    operations = sum(x.times * x.flops for x in costs)
    traffic = sum(x.times * x.bytes_accessed for x in costs)
    return Estimate(
        count_launches(program),
        operations,
        traffic,
        operations / chip.peak,
        traffic / chip.bandwidth,
        # Operations run one after the other.
        sum(x.seconds(chip) for x in costs),
        sum(_estimate_collective(x, target, devices) for x in collectives),
        collectives,
        tuple(program.data_dependent_loops()),
    )


def _estimate_collective(collective: Collective, target: Slice, devices: Sequence) -> float:
    # All links of the group work at once: a ring in each direction of each dimension.
    links = target.count_links([devices[n] for n in collective.group])
    # Collectives run one after the other, each at the full speed of its links.
    return collective.count * collective.bytes_received / (links * target.chip.link)
