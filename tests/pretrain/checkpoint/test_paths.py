"""Orbax takes some paths for patterns: these are refused."""

import pytest

from pretrain.checkpoint import streaming_writer
from pretrain.checkpoint.manager import Checkpoints
from pretrain.runtime.errors import UserError


@pytest.mark.parametrize("name", ["a[b]", "[!a]/run", "a\\b", "a**"])
def test_names_that_orbax_takes_for_patterns_are_refused(tmp_path, name):
    for save in (Checkpoints, lambda workdir: streaming_writer.write(workdir, 0, [])):
        with pytest.raises(UserError, match=r"take another --workdir"):
            save(tmp_path / name)
    assert not list(tmp_path.iterdir())
