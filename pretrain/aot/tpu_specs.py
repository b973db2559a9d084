"""Describes the TPUs that a step can be compiled for without having one, by their specifications.

Peaks, sizes and bandwidths are those of cloud.google.com/tpu/docs (pages v4, v5e, v5p, v6e; 2025).
"""

import importlib.util
import math
import os
from collections.abc import Sequence

from jax.experimental import topologies

from pretrain.aot.chips import Chip, Slice
from pretrain.runtime.errors import UserError

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


def make_slice(name: str, kind: str, grid: str) -> Slice:
    """Returns the slice `kind:grid`, as v5e:4x4, with devices that are not here.

    Raises:
        UserError: there is no such slice of this kind, or libtpu is not installed.
    """
    chip, shape = CHIPS[kind], tuple(int(n) for n in grid.split("x"))
    if len(shape) != chip.dimensions:
        example = "x".join("4" * chip.dimensions)
        raise UserError(
            f"topology={name!r}: slices of {kind} have {chip.dimensions} dimensions, "
            f"as {kind}:{example}"
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
