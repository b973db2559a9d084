"""A slice's name gives its chips, or an error that says what is wrong."""

import pytest

from pretrain.aot import tpu_specs
from pretrain.runtime.errors import UserError


@pytest.mark.parametrize(
    ("kind", "grid", "message"),
    [
        ("v5p", "4x4", "slices of v5p have 3 dimensions, as v5p:4x4x4"),
        ("v5e", "4x4x4", "slices of v5e have 2 dimensions"),
    ],
)
def test_an_unknown_grid_is_refused(kind, grid, message):
    with pytest.raises(UserError, match=message):
        tpu_specs.make_slice(f"{kind}:{grid}", kind, grid)


def test_without_libtpu_the_error_says_how_to_install_it(monkeypatch):
    monkeypatch.setattr(tpu_specs.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(UserError, match=r"pip install libtpu$"):
        tpu_specs.make_slice("v5e:4x4", "v5e", "4x4")
