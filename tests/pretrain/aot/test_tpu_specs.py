"""A topology's name gives its chips and links, or an error that says what is wrong."""

from types import SimpleNamespace

import numpy as np
import pytest

from pretrain.aot import tpu_specs
from pretrain.runtime.errors import UserError

LINKS = {  # slice, the devices that talk -> links over which each receives from the others
    "a ring": ("v5p", (4, 4, 4), [(0, 0, n) for n in range(4)], 2),
    "a line of v5e": ("v5e", (4, 4), [(n, 0) for n in range(4)], 1),
    "a ring of v5e": ("v5e", (16, 16), [(n, 0) for n in range(16)], 2),
    "half a ring": ("v5p", (4, 4, 4), [(0, 0, n) for n in range(2)], 1),
    "a plane": ("v5p", (4, 4, 8), [(0, a, b) for a in range(4) for b in range(8)], 4),
    "all": ("v4", (4, 4, 4), list(np.ndindex(4, 4, 4)), 6),
    "two neighbours": ("v6e", (2, 4), [(0, 0), (1, 0)], 1),
}


def test_devices_use_the_links_of_every_dimension_they_span():
    for case, (kind, shape, members, links) in LINKS.items():
        target = tpu_specs.Slice(case, tpu_specs.CHIPS[kind], shape, ())
        assert target.count_links([SimpleNamespace(coords=x) for x in members]) == links, case


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("v9:4x4", "want one of v4, v5e, v5p, v6e"),
        ("v5e", "want one of"),
        ("v5p:4x4", "slices of v5p have 3 dimensions, as v5p:4x4x4"),
        ("v5e:4x4x4", "slices of v5e have 2 dimensions"),
    ],
)
def test_an_unknown_topology_is_refused(name, message):
    with pytest.raises(UserError, match=message):
        tpu_specs.parse_topology(name)


def test_without_libtpu_the_error_says_how_to_install_it(monkeypatch):
    monkeypatch.setattr(tpu_specs.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(UserError, match=r"pip install libtpu$"):
        tpu_specs.parse_topology("v5e:4x4")
