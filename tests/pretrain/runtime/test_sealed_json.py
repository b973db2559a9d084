"""Damage to a JSON file that holds its own digest is noticed."""

import json

import pytest

from pretrain.runtime import sealed_json
from pretrain.runtime.errors import UserError

VALUE = {"a": 1, "b": {"c": [1.5, None, "ü"]}}


@pytest.fixture
def path(tmp_path):
    sealed_json.write(tmp_path / "f.json", VALUE)
    return tmp_path / "f.json"


def test_a_value_comes_back_without_its_digest(path):
    assert sealed_json.read(path) == VALUE


def test_the_order_of_keys_is_not_in_the_digest():
    assert sealed_json.digest({"a": 1, "b": 2}) == sealed_json.digest({"b": 2, "a": 1})


def test_a_changed_value_is_refused(path):
    path.write_text(json.dumps({**json.loads(path.read_text()), "a": 2}))
    with pytest.raises(UserError, match=r"f\.json is not what was written there"):
        sealed_json.read(path)


def test_an_older_file_without_a_digest_is_read(path):
    path.write_text(json.dumps(VALUE))
    assert sealed_json.read(path) == VALUE


def test_what_is_no_object_is_refused(path):
    path.write_text("[]")
    with pytest.raises(UserError, match="is not a JSON object"):
        sealed_json.read(path)
