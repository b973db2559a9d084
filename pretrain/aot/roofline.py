"""Estimates the least time of a compiled step: its roofline (Williams et al. 2009).

Latencies and elementwise work count as nothing: the real step is slower.
"""

import dataclasses
from collections.abc import Iterable, Sequence

from pretrain.aot.collectives import Collective, find_collectives
from pretrain.aot.hlo import Program
from pretrain.aot.hlo_cost import count_bytes_accessed, count_flops
from pretrain.aot.tpu_specs import Chip, Slice


@dataclasses.dataclass(frozen=True)
class Estimate:
    """The work of one chip in a step, and the seconds that it takes at least.

    Attributes:
        flops: operations of its matrix products.
        bytes_accessed: traffic of its main memory.
        products_seconds, memory_seconds: the time of each of the two alone.
        operations_seconds: the time of all operations, each in the longer of its two.
        links_seconds: the time of the collectives.
        data_dependent_loops: op_names of the loops that are counted as one iteration.
    """

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


def estimate(program: Program, target: Slice, devices: Sequence) -> Estimate:
    """Estimates a program on a slice; `devices` are in the order of its mesh."""
    chip, costs = target.chip, []
    # Every instruction is costed once, and weighted by how often it runs.
    for name, times in program.executions():
        for i in program.computations[name].values():
            costs.append(
                (times, count_flops(program, name, i), count_bytes_accessed(program, name, i))
            )
    collectives = tuple(find_collectives(program, len(devices)))
    operations, traffic = (sum(cost[0] * cost[k] for cost in costs) for k in (1, 2))
    return Estimate(
        operations,
        traffic,
        operations / chip.peak,
        traffic / chip.bandwidth,
        _estimate_operations(costs, chip),
        sum(_estimate_collective(x, target, devices) for x in collectives),
        collectives,
        tuple(program.data_dependent_loops()),
    )


def _estimate_operations(costs: Iterable[tuple[float, float, float]], chip: Chip) -> float:
    # Operations run one after the other.  Within one products at the chip's peak and traffic at
    # full bandwidth overlap, between two they do not.
    return sum(n * max(work / chip.peak, moved / chip.bandwidth) for n, work, moved in costs)


def _estimate_collective(collective: Collective, target: Slice, devices: Sequence) -> float:
    # All links of the group work at once: a ring in each direction of each dimension.
    links = target.count_links([devices[n] for n in collective.group])
    # Collectives run one after the other, each at the full speed of its links.
    return collective.count * collective.bytes_received / (links * target.chip.link)
