"""A change of an input is noticed, and an unchanged one is not read again."""

import fsspec

from pretrain.data.corpus import input_hashes
from tests.support.corpora import find_source


def test_an_unchanged_file_on_a_bucket_is_not_read_again(bucket, tmp_path, monkeypatch):
    def hash_all() -> dict[str, str]:
        return input_hashes.hash_inputs(find_source(f"text:{bucket}/**/*.txt*").inputs, tmp_path)

    one = hash_all()
    assert list(one) == [f"{bucket}/{name}" for name in ("a/c.txt.gz", "a/d.txt.zst", "b.txt")]
    read = []
    monkeypatch.setattr(input_hashes, "hash_file", lambda path: read.append(path.name) or "new")
    assert hash_all() == one
    assert read == []
    fsspec.filesystem("memory").pipe("/bucket/books/b.txt", b"Anothr.\n")  # of the same size
    assert hash_all() == one | {f"{bucket}/b.txt": "new"}
    assert read == ["b.txt"]


def test_a_cache_that_is_only_to_be_read_keeps_no_hashes(tmp_path, monkeypatch):
    def refuse(path, value):
        raise PermissionError(13, "Permission denied")

    (tmp_path / "a.txt").write_text("One.\n")
    monkeypatch.setattr(input_hashes.json_files, "write_sealed", refuse)
    (digest,) = input_hashes.hash_inputs([tmp_path / "a.txt"], tmp_path).values()
    assert digest == input_hashes.hash_file(tmp_path / "a.txt")


def test_at_most_three_changes_are_named():
    old, new = {"a": "1", "b": "1", "c": "1"}, {"a": "2", "d": "1"}
    difference = input_hashes.describe_difference(old, new)
    assert difference == "a changed, d is new, b is gone and 1 more"
    assert input_hashes.describe_difference(old, old) == ""
