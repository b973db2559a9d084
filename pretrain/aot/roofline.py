"""How long a compiled step takes at least: each operation as fast as products or memory allow.

Operations run one after the other, each in the longer of its products at the chip's peak and its
memory traffic at full bandwidth (Williams et al. 2009); collectives run beside them, one after the
other too, at the full speed of the links they use.  Latencies, and work that is neither, count as
nothing: the real step is slower.
"""

import dataclasses
from collections.abc import Iterable

from pretrain.aot.collectives import Collective, collectives
from pretrain.aot.hlo import Program
from pretrain.aot.hlo_cost import flops, traffic
from pretrain.aot.tpu_specs import Chip, Slice


@dataclasses.dataclass(frozen=True)
class Work:
    """What a chip does in a step, and the seconds of it.

    Attributes:
        flops: of its products.
        traffic: bytes to and from its memory.
        products, memory: seconds that each would take alone.
        operations: of all, each in the longer of the two.
        links: of its collectives.
        endless: where the loops are from that turn as often as the data want: they count once.
    """

    flops: float
    traffic: float
    products: float
    memory: float
    operations: float
    links: float
    collectives: tuple[Collective, ...]
    endless: tuple[str, ...]

    @property
    def seconds(self) -> float:
        """Of the step."""
        return max(self.operations, self.links)


def work(program: Program, place: Slice, devices) -> Work:
    """Of a program on a slice; `devices`, in the order of its mesh."""
    chip, pairs = place.chip, []
    for name, times in program.runs():
        for i in program.computations[name].values():
            pairs.append((times, flops(program, name, i), traffic(program, name, i)))
    found = tuple(collectives(program, len(devices)))
    products, moved = (sum(x[0] * x[k] for x in pairs) for k in (1, 2))
    return Work(
        products,
        moved,
        products / chip.peak,
        moved / chip.bandwidth,
        _operations(pairs, chip),
        sum(_seconds(each, place, devices) for each in found),
        found,
        tuple(program.endless()),
    )


def _operations(pairs: Iterable[tuple[float, float, float]], chip: Chip) -> float:
    return sum(n * max(done / chip.peak, moved / chip.bandwidth) for n, done, moved in pairs)


def _seconds(each: Collective, place: Slice, devices) -> float:
    lanes = place.lanes([devices[n] for n in each.group])
    return each.times * each.received / (lanes * place.chip.link)
