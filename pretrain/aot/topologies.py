"""The names of machines that a step can be compiled for: `v5p:4x4x4`, `h100:8`."""

import re

from pretrain.aot import gpu_specs, tpu_specs
from pretrain.aot.chips import Slice
from pretrain.runtime.errors import UserError


def parse_topology(name: str | None) -> Slice:
    """Returns the chips of a name, with devices that are not here.

    Raises:
        UserError: there are no such chips, or their compiler is not installed.
    """
    match = re.fullmatch(r"(\w+):(\d+(?:x\d+)*)", name or "")
    for specs in (tpu_specs, gpu_specs):
        if name and match and match[1] in specs.CHIPS:
            return specs.make_slice(name, match[1], match[2])
    known = ", ".join((*tpu_specs.CHIPS, *gpu_specs.CHIPS))
    raise UserError(f"topology={name!r}: want one of {known}, as in v5e:4x4 or h100:8")
