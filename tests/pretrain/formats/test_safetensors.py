"""Safetensors: what others wrote is read, what is written others read, and pickles stay shut."""

import json
import os
import pathlib
import pickle

import numpy as np
import pytest
import safetensors
import safetensors.numpy

from pretrain.formats import safetensors as our_format
from pretrain.runtime.errors import UserError
from tests.support import array_files as cases

INDEX = "model.safetensors.index.json"


def held():
    return {**cases.arrays(), "model/bf16": cases.bfloat16()}


def write(folder, arrays, **options):
    our_format.write(folder, cases.specs(arrays), iter(arrays.items()), **options)


def by_the_library(path) -> dict[str, np.ndarray]:
    with safetensors.safe_open(path, framework="np") as file:
        return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118


def names(folder) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_what_the_library_wrote_is_read_in_the_files_order(tmp_path):
    path = tmp_path / "model.safetensors"
    safetensors.numpy.save_file(held(), path)
    for given in (tmp_path, path):
        found = cases.content(our_format.open_arrays, given)
        cases.assert_same(found, held())
    with safetensors.safe_open(path, framework="np") as file:
        assert list(found) == file.offset_keys() != sorted(found)


def test_what_is_written_the_library_reads(tmp_path):
    write(tmp_path / "new", held())
    assert names(tmp_path / "new") == ["model.safetensors"]
    found = by_the_library(tmp_path / "new" / "model.safetensors")
    cases.assert_same(found, held())
    cases.assert_same(cases.content(our_format.open_arrays, tmp_path / "new"), held())


def test_arrays_of_one_type_keep_their_order_in_the_file(tmp_path):
    arrays = {name: np.ones(2, "float32") for name in "zbya"}
    write(tmp_path, arrays)
    with safetensors.safe_open(tmp_path / "model.safetensors", framework="np") as file:
        assert file.offset_keys() == list(arrays)


def test_no_array_is_at_an_odd_place(tmp_path):
    write(tmp_path, held())
    data = (tmp_path / "model.safetensors").read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    assert length % 8 == 0
    assert header.pop("__metadata__") == {"format": "pt"}
    for name, array in held().items():
        assert header[name]["data_offsets"][0] % array.dtype.itemsize == 0


def test_shards_are_bounded_and_the_index_lists_every_array(tmp_path):
    arrays = {
        f"t{i}": np.full(length, i, "float32") for i, length in enumerate([4, 4, 5, 20, 1, 2])
    }
    write(tmp_path, arrays, shard_bytes=32)
    shards = [f"model-{i:05}-of-00004.safetensors" for i in range(1, 5)]
    assert names(tmp_path) == [*shards, INDEX]
    index = json.loads((tmp_path / INDEX).read_text())
    assert index["metadata"] == {"total_size": 4 * 36}
    assert list(index["weight_map"]) == list(arrays)
    found = {}
    for shard in shards:
        part = by_the_library(tmp_path / shard)
        assert {index["weight_map"][name] for name in part} == {shard}
        assert len(part) == 1 or sum(array.nbytes for array in part.values()) <= 32
        found |= part
    cases.assert_same(found, arrays)
    cases.assert_same(cases.content(our_format.open_arrays, tmp_path), arrays)


def test_files_may_be_links_as_in_the_hubs_cache(tmp_path):
    blobs, folder = tmp_path / "blobs", tmp_path / "snapshots" / "main"
    write(blobs, {name: np.ones(4, "float32") for name in "abc"}, shard_bytes=16)
    folder.mkdir(parents=True)
    for path in sorted(blobs.iterdir()):
        path.rename(blobs / f"blob of {path.name}")
        (folder / path.name).symlink_to(f"../../blobs/blob of {path.name}")
    assert list(cases.content(our_format.open_arrays, folder)) == ["a", "b", "c"]


@pytest.mark.parametrize(
    "name", ["{}/other.safetensors", "../other.safetensors", "in/other.safetensors", "..", "x.bin"]
)
def test_an_index_reaches_no_file_outside_of_its_folder(tmp_path, name):
    folder = tmp_path / "model"
    (folder / "in").mkdir(parents=True)
    for place in (tmp_path, folder / "in"):
        safetensors.numpy.save_file({"a": np.ones(1)}, place / "other.safetensors")
    weights = {"weight_map": {"a": name.format(tmp_path)}}
    (folder / INDEX).write_text(json.dumps(weights))
    with pytest.raises(UserError, match=rf"{INDEX}: .*is no name of a shard"):
        our_format.open_arrays(folder)


@pytest.mark.parametrize(
    ("shards", "weights", "why"),
    [
        (("a", "b"), {"a": 1, "b": 2, "c": 3}, "model-3.safetensors: .*[Nn]o such file"),
        (("a", "b"), {"a": 1, "b": 2, "c": 2}, "model-2.safetensors: .*do not agree on c"),
        (("a", "bd"), {"a": 1, "b": 2}, "model-2.safetensors: .*do not agree on d"),
        (("ab", "b"), {"a": 1, "b": 2}, "model-1.safetensors: .*do not agree on b"),
        (("ab", "bc"), {"a": 1, "b": 1, "c": 2}, "model-2.safetensors: .*do not agree on b"),
    ],
    ids=["no shard", "no tensor", "a tensor more", "twice", "twice, the other"],
)
def test_an_index_and_its_shards_have_to_agree(tmp_path, shards, weights, why):
    for number, tensors in enumerate(shards, 1):
        path = tmp_path / f"model-{number}.safetensors"
        safetensors.numpy.save_file({name: np.ones(1) for name in tensors}, path)
    places = {name: f"model-{shard}.safetensors" for name, shard in weights.items()}
    (tmp_path / INDEX).write_text(json.dumps({"weight_map": places}))
    with pytest.raises(UserError, match=why):
        our_format.open_arrays(tmp_path)


PLACES = ["[1]", "0", '{"a": 1}', '{"a": ["b"]}', '{"a": null}']


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", "\0", *(f'{{"weight_map": {places}}}' for places in PLACES)]
)
def test_a_broken_index_is_named(tmp_path, text):
    (tmp_path / INDEX).write_text(text)
    with pytest.raises(UserError, match=INDEX):
        our_format.open_arrays(tmp_path)


@pytest.mark.parametrize("text", ["[]", "{}", '{"weight_map": null}'])
def test_an_index_without_its_map_is_said_to_have_none(tmp_path, text):
    (tmp_path / INDEX).write_text(text)
    with pytest.raises(UserError, match=rf"{INDEX}: has no weight_map"):
        our_format.open_arrays(tmp_path)


def test_weights_without_permission_are_not_said_to_be_missing(tmp_path, monkeypatch):
    write(tmp_path / "new", held())
    opened = pathlib.Path.open

    def denied(path, *args, **options):
        if path.suffix == ".safetensors":
            raise PermissionError(13, "Permission denied")
        return opened(path, *args, **options)

    monkeypatch.setattr(pathlib.Path, "open", denied)
    with pytest.raises(UserError, match=r"model\.safetensors: cannot be read: Permission denied"):
        our_format.open_arrays(tmp_path / "new")


def test_a_file_cut_short_anywhere_is_noticed_at_opening(tmp_path):
    write(tmp_path, {"a": np.arange(6.0).reshape(2, 3), "b": np.ones(3, "int8")})
    path = tmp_path / "model.safetensors"
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(UserError, match=r"model\.safetensors"):
            our_format.open_arrays(tmp_path)


def test_a_flipped_header_bit_gives_arrays_or_a_clear_error(tmp_path):
    write(tmp_path, {"a": np.arange(6.0).reshape(2, 3), "b": np.ones(3, "int8")})
    path = tmp_path / "model.safetensors"
    whole = path.read_bytes()
    for place in range(8 + int.from_bytes(whole[:8], "little")):
        path.write_bytes(cases.flipped(whole, place, place % 8))
        found = cases.outcome(our_format.open_arrays, tmp_path)
        assert isinstance(found, dict) or "model.safetensors" in str(found)


def header(**tensors) -> bytes:
    text = json.dumps(tensors).encode()
    return len(text).to_bytes(8, "little") + text


@pytest.mark.parametrize(
    "data",
    [
        (2**60).to_bytes(8, "little") + b"{}",
        header(a={"dtype": "F32", "shape": [2**60], "data_offsets": [0, 2**62]}) + bytes(16),
        header(a={"dtype": "F32", "shape": [2**62, 4], "data_offsets": [0, 16]}) + bytes(16),
        header(a={"dtype": "F32", "shape": [4], "data_offsets": [16, 0]}) + bytes(16),
        header(a={"dtype": "F32", "shape": [-4], "data_offsets": [0, 16]}) + bytes(16),
        header(
            a={"dtype": "F32", "shape": [4], "data_offsets": [0, 16]},
            b={"dtype": "F32", "shape": [4], "data_offsets": [8, 24]},
        )
        + bytes(24),
        header(a={"dtype": "F31", "shape": [4], "data_offsets": [0, 16]}) + bytes(16),
        header(a=[]),
        header()[:8] + b"[]",
    ],
)
def test_an_absurd_header_is_refused(tmp_path, data):
    (tmp_path / "model.safetensors").write_bytes(data)
    with pytest.raises(UserError, match=r"model\.safetensors"):
        our_format.open_arrays(tmp_path)


def test_a_type_unknown_to_numpy_is_named_the_rest_read(tmp_path):
    data = header(
        a={"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
        b={"dtype": "F8_E5M2", "shape": [3], "data_offsets": [8, 11]},
    )
    (tmp_path / "model.safetensors").write_bytes(data + bytes(11))
    with our_format.open_arrays(tmp_path) as file:
        assert (list(file.specs), file.others) == (["a"], {"b": "F8_E5M2"})


@pytest.mark.parametrize("name", ["pytorch_model.bin", "weights.pt", "weights.pth"])
@pytest.mark.parametrize("direct", [True, False], ids=["file", "folder"])
def test_a_pickle_is_refused_with_the_safe_way(tmp_path, name, direct):
    touched = tmp_path / "touched"
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / name).write_bytes(pickle.dumps(cases.Evil(touched)))
    with pytest.raises(UserError, match=rf"{name}: a pickle can run code .*weights_only=True"):
        our_format.open_arrays(folder / name if direct else folder)
    assert not touched.exists()
    pickle.loads((folder / name).read_bytes()).close()
    assert touched.exists()


def test_of_both_kinds_the_pickle_is_not_read(tmp_path):
    write(tmp_path, {"a": np.ones(1)})
    (tmp_path / "pytorch_model.bin").write_bytes(pickle.dumps(cases.Evil(tmp_path / "touched")))
    assert list(cases.content(our_format.open_arrays, tmp_path)) == ["a"]
    assert not (tmp_path / "touched").exists()


@pytest.mark.parametrize("name", ["none", "empty", "text"])
def test_what_holds_no_weights_is_refused(tmp_path, name):
    (tmp_path / "empty").mkdir()
    (tmp_path / "text").write_text("text")
    with pytest.raises(UserError, match=rf"{name}: no model\.safetensors"):
        our_format.open_arrays(tmp_path / name)


def test_weights_that_are_there_are_not_written_over(tmp_path):
    write(tmp_path / "one", {"a": np.ones(1)})
    write(tmp_path / "two", {"a": np.ones(1), "b": np.ones(1)}, shard_bytes=8)
    for name in ("one", "two"):
        with pytest.raises(UserError, match=r"is there already: delete it, or name another"):
            write(tmp_path / name, {"c": np.ones(1)})


def test_an_unsupported_type_is_refused_before_anything_is_written(tmp_path):
    with pytest.raises(UserError, match="no type for b, which is complex64"):
        write(tmp_path / "new", {"a": np.ones(1), "b": np.ones(1, "complex64")})
    assert not (tmp_path / "new").exists()


def test_shards_that_fail_leave_nothing(tmp_path):
    arrays = {name: np.ones(4) for name in "abc"}

    def fails():
        yield from list(arrays.items())[:2]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        our_format.write(tmp_path, cases.specs(arrays), fails(), shard_bytes=32)
    assert names(tmp_path) == []


def test_the_index_gets_its_name_when_all_shards_have_theirs(tmp_path, monkeypatch):
    replace, there = os.replace, []

    def replaced(draft, path):
        replace(draft, path)
        there.append({name for name in names(tmp_path) if not name.startswith(".")})

    monkeypatch.setattr(os, "replace", replaced)
    write(tmp_path, {name: np.ones(4) for name in "abc"}, shard_bytes=32)
    assert [INDEX in files for files in there] == [False] * 3 + [True]
    assert len(there[2]) == 3
