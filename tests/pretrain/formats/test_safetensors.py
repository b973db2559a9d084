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


def all_arrays():
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
    safetensors.numpy.save_file(all_arrays(), path)
    for given in (tmp_path, path):
        found = cases.content(our_format.open_arrays, given)
        cases.assert_same(found, all_arrays())
    with safetensors.safe_open(path, framework="np") as file:
        assert list(found) == file.offset_keys() != sorted(found)


def test_arrays_are_aligned_and_those_of_one_type_keep_their_order(tmp_path):
    arrays = all_arrays() | {name: np.ones(2, "float32") for name in "zby"}
    write(tmp_path, arrays)
    data = (tmp_path / "model.safetensors").read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    assert length % 8 == 0
    assert header.pop("__metadata__") == {"format": "pt"}
    places = {name: header[name]["data_offsets"][0] for name in arrays}
    assert not any(place % arrays[name].dtype.itemsize for name, place in places.items())
    assert [name for name in sorted(places, key=places.get) if name in "zby"] == ["z", "b", "y"]


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


PLACES = ["[1]", "0", "null", '{"a": 1}', '{"a": ["b"]}', '{"a": null}']


@pytest.mark.parametrize(
    "text", ["", "\0", "[]", "{}", *(f'{{"weight_map": {places}}}' for places in PLACES)]
)
def test_a_broken_index_is_named(tmp_path, text):
    (tmp_path / INDEX).write_text(text)
    has_no_map = text in ("[]", "{}", '{"weight_map": null}')
    with pytest.raises(UserError, match=f"{INDEX}: has no weight_map" if has_no_map else INDEX):
        our_format.open_arrays(tmp_path)


def test_weights_without_permission_are_not_said_to_be_missing(tmp_path, monkeypatch):
    write(tmp_path / "new", all_arrays())
    opened = pathlib.Path.open

    def denied(path, *args, **options):
        if path.suffix == ".safetensors":
            raise PermissionError(13, "Permission denied")
        return opened(path, *args, **options)

    monkeypatch.setattr(pathlib.Path, "open", denied)
    with pytest.raises(UserError, match=r"model\.safetensors: cannot be read: Permission denied"):
        our_format.open_arrays(tmp_path / "new")


def header(*tensors: tuple) -> bytes:
    """Writes a header of (dtype, shape, begin, end), and sixteen bytes of arrays."""
    table = {
        name: {"dtype": dtype, "shape": shape, "data_offsets": place}
        for name, (dtype, shape, *place) in zip("ab", tensors, strict=False)
    }
    text = json.dumps(table).encode()
    return len(text).to_bytes(8, "little") + text + bytes(16)


ABSURD = {
    "length": (2**60).to_bytes(8, "little") + b"{}",
    "size": header(("F32", [2**60], 0, 2**62)),
    "overflow": header(("F32", [2**62, 4], 0, 16)),
    "backwards": header(("F32", [4], 16, 0)),
    "negative": header(("F32", [-4], 0, 16)),
    "overlap": header(("F32", [3], 0, 12), ("F32", [3], 4, 16)),
    "type": header(("F31", [4], 0, 16)),
    "list": header()[:8] + b"[]",
}


@pytest.mark.parametrize("data", ABSURD.values(), ids=ABSURD)
def test_an_absurd_header_is_refused(tmp_path, data):
    (tmp_path / "model.safetensors").write_bytes(data)
    with pytest.raises(UserError, match=r"model\.safetensors"):
        our_format.open_arrays(tmp_path)


def test_a_type_unknown_to_numpy_is_named_the_rest_read(tmp_path):
    data = header(("F32", [2], 0, 8), ("F8_E5M2", [8], 8, 16))
    (tmp_path / "model.safetensors").write_bytes(data)
    with our_format.open_arrays(tmp_path) as file:
        assert (list(file.specs), file.others) == (["a"], {"b": "F8_E5M2"})


@pytest.mark.parametrize("name", ["pytorch_model.bin", "weights.pt", "weights.pth"])
def test_a_pickle_is_refused_with_the_safe_way(tmp_path, name):
    touched, pickled = tmp_path / "touched", tmp_path / "model" / name
    pickled.parent.mkdir()
    pickled.write_bytes(pickle.dumps(cases.Evil(touched)))
    for path in (pickled, pickled.parent):
        with pytest.raises(UserError, match=rf"{name}: a pickle can run code .*weights_only=True"):
            our_format.open_arrays(path)
    assert not touched.exists()
    pickle.loads(pickled.read_bytes()).close()
    assert touched.exists()


def test_of_both_kinds_the_pickle_is_not_read(tmp_path):
    write(tmp_path, {"a": np.ones(1)})
    (tmp_path / "pytorch_model.bin").write_bytes(pickle.dumps(cases.Evil(tmp_path / "touched")))
    assert list(cases.content(our_format.open_arrays, tmp_path)) == ["a"]
    assert not (tmp_path / "touched").exists()


def test_weights_that_are_there_are_not_written_over(tmp_path):
    write(tmp_path / "one", {"a": np.ones(1)})
    write(tmp_path / "two", {"a": np.ones(1), "b": np.ones(1)}, shard_bytes=8)
    for name in ("one", "two"):
        with pytest.raises(UserError, match=r"is there already: delete it, or name another"):
            write(tmp_path / name, {"c": np.ones(1)})


def test_the_index_gets_its_name_when_all_shards_have_theirs(tmp_path, monkeypatch):
    replace, there = os.replace, []

    def replaced(draft, path):
        replace(draft, path)
        there.append({name for name in names(tmp_path) if not name.startswith(".")})

    monkeypatch.setattr(os, "replace", replaced)
    write(tmp_path, {name: np.ones(4) for name in "abc"}, shard_bytes=32)
    assert [INDEX in files for files in there] == [False] * 3 + [True]
    assert len(there[2]) == 3
