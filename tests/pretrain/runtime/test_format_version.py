"""A run that another version wrote is refused."""

import json

import pytest

from pretrain.runtime import run_config
from pretrain.runtime.errors import UserError
from pretrain.runtime.format_version import FORMAT


@pytest.mark.parametrize("number", [None, FORMAT - 1, FORMAT + 1])
def test_a_run_of_another_format_is_refused_in_a_line(tmp_path, number):
    config = {"model": {"D": 8}} | ({"format": number} if number else {})
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(UserError, match="train the run again, or import its release") as refusal:
        run_config.read_config(tmp_path)
    assert str(refusal.value).startswith(f"{tmp_path} has format {number or 1}, ")
    assert "\n" not in str(refusal.value)
