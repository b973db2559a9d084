"""A topology's name says whose compiler makes the chips."""

import pytest

from pretrain.aot import gpu_specs, topologies, tpu_specs
from pretrain.runtime.errors import UserError


@pytest.mark.parametrize("name", ["v9:4x4", "v5e", "h100", "h100:", "", None])
def test_an_unknown_topology_is_refused(name):
    with pytest.raises(UserError, match="want one of v4, v5e, v5p, v6e, a100, h100, h200, l4"):
        topologies.parse_topology(name)


@pytest.mark.parametrize(("name", "specs"), [("v5p:2x2x1", tpu_specs), ("h200:8", gpu_specs)])
def test_a_name_is_parsed_into_its_kind_and_grid(monkeypatch, name, specs):
    monkeypatch.setattr(specs, "make_slice", lambda *words: words)
    assert topologies.parse_topology(name) == (name, *name.split(":"))
