"""Chips receive over the links of all dimensions that they span."""

from types import SimpleNamespace

import numpy as np

from pretrain.aot import chips, gpu_specs, tpu_specs

LINKS = {  # slice, the devices that talk -> links over which each receives from the others
    "a ring": ("v5p", (4, 4, 4), [(0, 0, n) for n in range(4)], 2),
    "a line of v5e": ("v5e", (4, 4), [(n, 0) for n in range(4)], 1),
    "a ring of v5e": ("v5e", (16, 16), [(n, 0) for n in range(16)], 2),
    "half a ring": ("v5p", (4, 4, 4), [(0, 0, n) for n in range(2)], 1),
    "a plane": ("v5p", (4, 4, 8), [(0, a, b) for a in range(4) for b in range(8)], 4),
    "all": ("v4", (4, 4, 4), list(np.ndindex(4, 4, 4)), 6),
    "GPUs": ("h100", (8,), [(n,) for n in range(8)], 1),
    "two neighbours": ("v6e", (2, 4), [(0, 0), (1, 0)], 1),
}


CHIPS = {**tpu_specs.CHIPS, **gpu_specs.CHIPS}


def test_devices_use_the_links_of_every_dimension_they_span():
    for case, (kind, shape, members, links) in LINKS.items():
        target = chips.Slice(case, CHIPS[kind], shape, ())
        assert target.count_links([SimpleNamespace(coords=x) for x in members]) == links, case
