"""Describes the TPUs that a step can be compiled for without having one, by their specifications.

Peaks, sizes and bandwidths are those of cloud.google.com/tpu/docs (pages v4, v5e, v5p, v6e; 2025).
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
    """One kind of TPU; where it has two cores, both are one device.

    Attributes:
        kind: its name in JAX (`device_kind`).
        memory: bytes of HBM that the compiler gives a program.
        bandwidth: bytes per second of that memory.
        link: bytes per second to a neighbour, one way.
        dimensions: number of dimensions of the torus.
        ring_multiple: a dimension of a slice is a ring, not a line, if it is a multiple of this.
    """

    kind: str
    memory: float
    bandwidth: float
    link: float
    dimensions: int
    ring_multiple: int

    @property
    def peak(self) -> float:
        return PEAKS[self.kind]


# A link's figure is for one direction: the documented "bidirectional bandwidth per chip" sums both
# directions of 4 links (v5e, v6e) or of 6.  v4's is of Jouppi et al. 2023 (arXiv 2304.01433).
CHIPS = {
    "v4": Chip("TPU v4", 30.75 * 2**30, 1200e9, 50e9, 3, 4),
    "v5e": Chip("TPU v5 lite", 15.75 * 2**30, 819e9, 50e9, 2, 16),
    "v5p": Chip("TPU v5", 95.73 * 2**30, 2765e9, 100e9, 3, 4),
    "v6e": Chip("TPU v6 lite", 31.24 * 2**30, 1638e9, 100e9, 2, 16),
}
# libtpu would ask Google's metadata server for its machine, and wait for a TPU in use here.
OFFLINE_ENVIRONMENT = {
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_ACCELERATOR_TYPE": "v5litepod-4",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    "TPU_STDERR_LOG_LEVEL": "3",
    "TPU_MIN_LOG_LEVEL": "3",
}


@dataclasses.dataclass(frozen=True)
class Slice:
    """A part of a pod: chips in a grid, with a name like `v5p:4x4x4`."""

    name: str
    chip: Chip
    shape: tuple[int, ...]
    devices: Sequence

    def count_links(self, members: Sequence) -> int:
        """Counts the links over which each of some devices receives from the others at once."""
        links = 0
        for axis, size in enumerate(self.shape):
            spanned = len({device.coords[axis] for device in members})
            # Two along each dimension that they span as a ring, one where it is a line.  Part of a
            # ring is a line: the link that closes it is another group's.
            ring = spanned == size and size % self.chip.ring_multiple == 0
            links += (2 if ring else 1) if spanned > 1 else 0
        return links


def parse_topology(name: str | None) -> Slice:
    """Returns the slice of a name like `v5e:4x4` or `v5p:4x4x4`, with devices that are not here.

    Raises:
        UserError: there is no such chip or no such slice of it, or libtpu is not installed.
    """
    match = re.fullmatch(r"(\w+):(\d+(?:x\d+)+)", name or "")
    chip = CHIPS.get(match[1]) if match else None
    if not name or not match or not chip:
        raise UserError(f"topology={name!r}: want one of {', '.join(CHIPS)}, as in v5e:4x4")
    shape = tuple(int(n) for n in match[2].split("x"))
    if len(shape) != chip.dimensions:
        example = "x".join("4" * chip.dimensions)
        raise UserError(
            f"topology={name!r}: slices of {match[1]} have {chip.dimensions} dimensions, "
            f"as {match[1]}:{example}"
        )
    return Slice(name, chip, shape, _describe_devices(name, chip, shape))


def _describe_devices(name: str, chip: Chip, shape: tuple[int, ...]) -> Sequence:
    if not importlib.util.find_spec("libtpu"):
        raise UserError("to compile for TPUs that are not here, first: pip install libtpu")
    # Read when libtpu is loaded; a value of the user's own stays.
    for variable, value in OFFLINE_ENVIRONMENT.items():
        os.environ.setdefault(variable, value)
    # By default a v4 is two devices.
    cores = {"chip_config_name": "megacore"} if chip is CHIPS["v4"] else {}
    # A slice smaller than a host has to say that its host is no larger.
    host = {"chips_per_host_bounds": (*shape, 1, 1)[:3]} if math.prod(shape) < 4 else {}
    try:
        return topologies.get_topology_desc(name, "tpu", **cores, **host).devices
    except Exception as error:  # libtpu has no class of errors of its own
        raise UserError(f"topology={name!r}: {str(error).splitlines()[0]}") from error
