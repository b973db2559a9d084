"""The chips that a step can be compiled for without having one, as their maker describes them.

Peaks, sizes and bandwidths are those of cloud.google.com/tpu/docs (pages v4, v5e, v5p, v6e; 2025);
the links of v4 are of Jouppi et al. 2023 (arXiv 2304.01433).  A link's figure is for one direction:
the documented "bidirectional bandwidth per chip" is of 2 directions of 4 links (v5e, v6e) or 6.
"""

import dataclasses
import importlib.util
import math
import os
import re
from collections.abc import Sequence

from jax.experimental import topologies

from pretrain.distributed.peak_flops import PEAKS
from pretrain.runtime.errors import UserError


@dataclasses.dataclass(frozen=True)
class Chip:
    """One kind; with both of its cores as one device, where it has two.

    Attributes:
        kind: as JAX names it.
        memory: bytes that the compiler lets a program have.
        bandwidth: of that memory, bytes per second.
        link: bytes per second to a neighbour, one way.
        dimensions: of the torus.
        closes: a dimension of a slice is a ring, not a line, where it is a multiple of this.
    """

    kind: str
    memory: float
    bandwidth: float
    link: float
    dimensions: int
    closes: int

    @property
    def peak(self) -> float:
        """bfloat16 operations per second."""
        return PEAKS[self.kind]


CHIPS = {
    "v4": Chip("TPU v4", 30.75 * 2**30, 1200e9, 50e9, 3, 4),
    "v5e": Chip("TPU v5 lite", 15.75 * 2**30, 819e9, 50e9, 2, 16),
    "v5p": Chip("TPU v5", 95.73 * 2**30, 2765e9, 100e9, 3, 4),
    "v6e": Chip("TPU v6 lite", 31.24 * 2**30, 1638e9, 100e9, 2, 16),
}
# Nothing is asked of a machine that is not there, and nothing of one that is there and busy.
ALONE = {
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_ACCELERATOR_TYPE": "v5litepod-4",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    "TPU_STDERR_LOG_LEVEL": "3",
    "TPU_MIN_LOG_LEVEL": "3",
}


@dataclasses.dataclass(frozen=True)
class Slice:
    """A part of a pod: its chips in a grid of this shape."""

    name: str
    chip: Chip
    shape: tuple[int, ...]
    devices: Sequence

    def lanes(self, members: Sequence) -> int:
        """Links over which each of these chips hears from the others at once.

        Two along each dimension of the slice that they span as a ring, one where it is a line.
        """
        lanes = 0
        for axis, size in enumerate(self.shape):
            spanned = len({device.coords[axis] for device in members})
            ring = spanned == size and size % self.chip.closes == 0
            lanes += (2 if ring else 1) if spanned > 1 else 0
        return lanes


def described(name: str | None) -> Slice:
    """The slice `v5e:4x4`, `v5p:4x4x4`: chips that are not here.

    Raises:
        UserError: there is no such chip, it has no such slices, or libtpu is not installed.
    """
    found = re.fullmatch(r"(\w+):(\d+(?:x\d+)+)", name or "")
    chip = CHIPS.get(found[1]) if found else None
    if not name or not found or not chip:
        raise UserError(f"topology={name!r}: want one of {', '.join(CHIPS)}, as in v5e:4x4")
    shape = tuple(int(n) for n in found[2].split("x"))
    if len(shape) != chip.dimensions:
        example = "x".join("4" * chip.dimensions)
        raise UserError(
            f"topology={name!r}: slices of {found[1]} have {chip.dimensions} dimensions, "
            f"as {found[1]}:{example}"
        )
    return Slice(name, chip, shape, _devices(name, chip, shape))


def _devices(name: str, chip: Chip, shape: tuple[int, ...]) -> Sequence:
    if not importlib.util.find_spec("libtpu"):
        raise UserError("to compile for TPUs that are not here, first: pip install libtpu")
    for variable, value in ALONE.items():
        os.environ.setdefault(variable, value)
    # A v4 is two devices unless told otherwise; a slice smaller than a host is a host of its own.
    how = {"chip_config_name": "megacore"} if chip is CHIPS["v4"] else {}
    small = {"chips_per_host_bounds": (*shape, 1, 1)[:3]} if math.prod(shape) < 4 else {}
    try:
        return topologies.get_topology_desc(name, "tpu", **how, **small).devices
    except Exception as error:  # of no class of its own
        raise UserError(f"topology={name!r}: {str(error).splitlines()[0]}") from error
