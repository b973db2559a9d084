"""Chips that a step can be compiled for without having one, and groups of them."""

import dataclasses
from collections.abc import Mapping, Sequence

from pretrain.distributed.peak_flops import PEAKS


@dataclasses.dataclass(frozen=True)
class Chip:
    """One kind of accelerator; where it has two cores, both are one device.

    Attributes:
        kind: its name in JAX (`device_kind`).
        memory: bytes of its main memory that a program gets.
        bandwidth: bytes per second of that memory.
        link: bytes per second to a neighbour, or of a GPU to all others, one way.
        dimensions: number of dimensions of the torus; 0: each is linked with all others.
        ring_multiple: a dimension of a slice is a ring, not a line, if it is a multiple of this.
    """

    kind: str
    memory: float
    bandwidth: float
    link: float
    dimensions: int = 0
    ring_multiple: int = 1

    @property
    def peak(self) -> float:
        return PEAKS[self.kind]


@dataclasses.dataclass(frozen=True)
class Slice:
    """Chips in a grid, a part of a TPU pod like `v5p:4x4x4`, or the GPUs of a host, `h100:8`.

    Attributes:
        compiler_options: of XLA, for a compiler that has no such chip at hand.
    """

    name: str
    chip: Chip
    shape: tuple[int, ...]
    devices: Sequence
    compiler_options: Mapping[str, bool] = dataclasses.field(default_factory=dict)

    def count_links(self, members: Sequence) -> int:
        """Counts the links over which each of some devices receives from the others at once."""
        if not self.chip.dimensions:
            return 1
        links = 0
        for axis, size in enumerate(self.shape):
            spanned = len({device.coords[axis] for device in members})
            # Two along each dimension that they span as a ring, one where it is a line.  Part of a
            # ring is a line: the link that closes it is another group's.
            ring = spanned == size and size % self.chip.ring_multiple == 0
            links += (2 if ring else 1) if spanned > 1 else 0
        return links
