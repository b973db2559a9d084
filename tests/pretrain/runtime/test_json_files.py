"""What is wrong with a JSON file is named, and damage to a sealed one is noticed."""

import json

import pytest

from pretrain.runtime import json_files
from pretrain.runtime.errors import UserError

VALUE = {"a": 1, "b": {"c": [1.5, None, "ü"]}}


def test_json_comes_back_and_no_draft_stays(tmp_path):
    value = {"a": [1, 2.5, None], "ö": "ß", "deep": {"x": True}}
    json_files.write_json(tmp_path / "new" / "f.json", value)
    assert json_files.read_json(tmp_path / "new" / "f.json") == value
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["f.json"]


def test_a_value_that_is_not_json_leaves_the_old_file(tmp_path):
    json_files.write_json(tmp_path / "f.json", 1)
    with pytest.raises(TypeError):
        json_files.write_json(tmp_path / "f.json", {"x": object()})
    assert json_files.read_json(tmp_path / "f.json") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["f.json"]


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b'{"a": 1,\n "b" 2}', r"f\.json is not JSON at line 2, column 6"),
        (b"", r"f\.json is not JSON at line 1"),
        (b'{"a": "\xff"}', r"f\.json is not UTF-8 at byte 7"),
        (b"[" * 200_000, r"f\.json is not ours: it is nested too deeply"),
        (b"9" * 5_000, r"f\.json is not ours: Exceeds the limit"),
    ],
)
def test_broken_json_is_named_with_its_place(tmp_path, content, complaint):
    (tmp_path / "f.json").write_bytes(content)
    with pytest.raises(UserError, match=complaint):
        json_files.read_json(tmp_path / "f.json")


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(UserError, match=r"no\.json: No such file"):
        json_files.read_json(tmp_path / "no.json")


@pytest.fixture
def path(tmp_path):
    json_files.write_sealed(tmp_path / "f.json", VALUE)
    return tmp_path / "f.json"


def test_a_value_comes_back_without_its_digest(path):
    assert json_files.read_sealed(path) == VALUE


def test_the_order_of_keys_is_not_in_the_digest():
    assert json_files.hash_json({"a": 1, "b": 2}) == json_files.hash_json({"b": 2, "a": 1})


def test_a_changed_value_is_refused(path):
    path.write_text(json.dumps({**json.loads(path.read_text()), "a": 2}))
    with pytest.raises(UserError, match=r"f\.json is not what was written there"):
        json_files.read_sealed(path)


def test_an_older_file_without_a_digest_is_read(path):
    path.write_text(json.dumps(VALUE))
    assert json_files.read_sealed(path) == VALUE


def test_what_is_no_object_is_refused(path):
    path.write_text("[]")
    with pytest.raises(UserError, match="is not a JSON object"):
        json_files.read_sealed(path)
