"""What every format promises: one array at a time, whole files or none, and no damage read."""

import functools
import json
import signal
import tracemalloc
import weakref

import h5py
import numpy as np
import pytest
from safetensors.numpy import load_file

from pretrain.formats import hdf5, npy_shards, npz, safetensors, tensorflow
from pretrain.runtime.errors import UserError
from tests.support import array_files as cases
from tests.support import commands, tensorflow_checkpoint

WRITERS = {"hdf5": hdf5, "safetensors": safetensors, "npz": npz}
READERS = {**WRITERS, "npy_shards": npy_shards, "tensorflow": tensorflow}
SHARDED = {name: (name, {}) for name in WRITERS} | {
    "shards": ("safetensors", {"shard_bytes": 4000})
}
SMALL = {name: np.full(1000, i, "float32") for i, name in enumerate("abc")}
TINY = {"a/b": np.arange(6, dtype="float32").reshape(2, 3), "c": np.ones(3, "int8")}


@pytest.fixture(params=SHARDED)
def write(request, tmp_path):
    """Writes these to `tmp_path`/out."""
    name, options = SHARDED[request.param]
    write = functools.partial(WRITERS[name].write, tmp_path / "out", **options)
    write.open_arrays, write.name, write.options = WRITERS[name].open_arrays, name, options
    return write


def list_files(folder) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


# --- writing ---------------------------------------------------------------------------------


def read_by_h5py(path):
    with h5py.File(path) as file:
        return {name: np.asarray(file[name][()]) for name in cases.arrays()}


LIBRARIES = {
    "hdf5": read_by_h5py,
    "npz": lambda path: dict(np.load(path)),
    "safetensors": lambda path: load_file(path / "model.safetensors"),
}


@pytest.mark.parametrize("name", WRITERS)
def test_what_is_written_the_formats_own_library_reads(tmp_path, name):
    arrays, path = cases.arrays(), tmp_path / "new" / "w"
    arrays |= {"model/bf16": cases.bfloat16()} if name == "safetensors" else {}
    WRITERS[name].write(path, cases.specs(arrays), arrays.items())
    cases.assert_same(LIBRARIES[name](path), arrays)
    cases.assert_same(cases.content(WRITERS[name].open_arrays, path), arrays)


def test_only_one_array_at_a_time_is_in_memory(write):
    alive = []

    def draw():
        for i in range(6):
            assert not [ref for ref in alive if ref() is not None]
            array = np.full((64, 1024), i, "float32")
            alive.append(weakref.ref(array))
            yield f"g/{i}", array
            del array

    write(cases.specs({f"g/{i}": np.empty((64, 1024), "float32") for i in range(6)}), draw())
    assert len(alive) == 6


def test_writing_and_reading_take_the_room_of_one_array(write, tmp_path):
    one = 1 << 20
    specs = {f"{i}": cases.Spec((one,), np.dtype("uint8")) for i in range(8)}
    tracemalloc.start()
    write(specs, ((name, np.full(one, int(name), "uint8")) for name in specs))
    with write.open_arrays(tmp_path / "out") as file:
        for name in specs:
            assert file.read(name)[0] == int(name)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 3 * one


@pytest.mark.parametrize("fault", ["order", "shape", "type", "missing", "error"])
def test_arrays_that_are_not_as_announced_leave_nothing(write, tmp_path, fault):
    arrays = dict(SMALL)
    if fault == "order":
        arrays = {name: arrays[name] for name in "acb"}
    elif fault == "shape":
        arrays["b"] = arrays["b"][:-1]
    elif fault == "type":
        arrays["b"] = arrays["b"].astype("float64")
    elif fault == "missing":
        del arrays["c"]

    def draw():
        for name, array in arrays.items():
            if fault == "error" and name == "c":
                raise ZeroDivisionError
            yield name, array

    with pytest.raises(ZeroDivisionError if fault == "error" else ValueError) as caught:
        write(cases.specs(SMALL), draw())
    assert not isinstance(caught.value, UserError)
    assert list_files(tmp_path) == []


def test_a_full_disk_is_named_and_leaves_nothing(write, tmp_path):
    with cases.small_disk(3000), pytest.raises(UserError, match="written: File too large"):
        write(cases.specs(SMALL), SMALL.items())
    assert list_files(tmp_path) == []
    write(cases.specs(SMALL), SMALL.items())
    cases.assert_same(cases.content(write.open_arrays, tmp_path / "out"), SMALL)


@pytest.mark.parametrize("name", WRITERS)
def test_a_place_that_cannot_be_written_is_named(tmp_path, name):
    (tmp_path / "text").write_text("text")
    with pytest.raises(UserError, match=r"text/out.*: cannot be written: Not a directory"):
        WRITERS[name].write(tmp_path / "text" / "out", cases.specs(SMALL), SMALL.items())


@pytest.mark.parametrize("name", WRITERS)
def test_a_type_without_a_name_is_refused_before_anything_is_written(tmp_path, name):
    array = np.ones(1, "complex64") if name == "safetensors" else cases.bfloat16()
    arrays = {"a": np.ones(1), "b": array}
    with pytest.raises(UserError, match=f"no type for b, which is {array.dtype}"):
        WRITERS[name].write(tmp_path / "w", cases.specs(arrays), arrays.items())
    assert not list(tmp_path.iterdir())


KILLED = """
import importlib, json, os, signal, sys
import numpy as np
from pretrain.formats import Spec
def arrays():
    yield "a", np.ones(1000, "float32")
    yield "b", np.ones(1000, "float32")
    os.kill(os.getpid(), signal.SIGKILL)
module = importlib.import_module(f"pretrain.formats.{sys.argv[1]}")
specs = {name: Spec((1000,), np.dtype("float32")) for name in "abc"}
module.write(sys.argv[2], specs, arrays(), **json.loads(sys.argv[3]))
"""


def test_a_killed_writer_leaves_no_file_and_hinders_no_other(write, tmp_path):
    words = [KILLED, write.name, tmp_path / "out", json.dumps(write.options)]
    assert commands.run("-c", *words).returncode == -signal.SIGKILL
    assert all(name.split("/")[-1].startswith(".") for name in list_files(tmp_path))
    with pytest.raises(UserError):
        write.open_arrays(tmp_path / "out")
    write(cases.specs(SMALL), SMALL.items())
    cases.assert_same(cases.content(write.open_arrays, tmp_path / "out"), SMALL)


# --- reading ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", READERS)
def test_what_is_no_such_file_is_refused(tmp_path, name):
    (tmp_path / "empty").mkdir()
    for file in ("text", "text.index"):
        (tmp_path / file).write_text("no table, but longer than the forty-eight bytes of a footer")
    for path in ("nothing", "a/nothing", "empty", "text", "text.index"):
        with pytest.raises(UserError, match=path):
            READERS[name].open_arrays(tmp_path / path)


def test_an_unknown_name_is_the_callers_mistake(write, tmp_path):
    write(cases.specs(SMALL), SMALL.items())
    with write.open_arrays(tmp_path / "out") as file, pytest.raises(KeyError):
        file.read("d")


def write_sample(folder, name):
    """Writes a small file of the format; returns what to open, the files, and the arrays."""
    if name == "tensorflow":
        tensorflow_checkpoint.write(folder)
        return folder, sorted(folder.iterdir()), tensorflow_checkpoint.HELD
    if name == "npy_shards":
        cases.write_shards(folder)
        return folder, [folder / "params_1.npy"], {}
    path = folder if name == "safetensors" else folder / "w"
    WRITERS[name].write(path, cases.specs(TINY), TINY.items())
    return path, list(folder.iterdir()), TINY


steps = pytest.mark.parametrize("step", [9, pytest.param(1, marks=pytest.mark.slow)])


@steps
@pytest.mark.parametrize("name", READERS)
def test_a_file_cut_short_anywhere_is_noticed(tmp_path, name, step):
    opened, files, _ = write_sample(tmp_path, name)
    # HDF5 may notice only when an array is read; all others do at opening.
    read = functools.partial(cases.content, hdf5.open_arrays) if name == "hdf5" else None
    for path in files:
        whole = path.read_bytes()
        for length in {*range(0, len(whole), step), len(whole) - 1}:
            path.write_bytes(whole[:length])
            with pytest.raises(UserError, match=path.name):
                (read or READERS[name].open_arrays)(opened)
        path.write_bytes(whole)


@steps
@pytest.mark.parametrize("name", ["npz", "tensorflow"])
def test_a_flipped_bit_is_noticed_or_without_effect(tmp_path, name, step):
    opened, files, arrays = write_sample(tmp_path, name)
    for path in files:
        whole = path.read_bytes()
        silent = set()
        for place in range(0, len(whole), step):
            path.write_bytes(cases.flipped(whole, place, place % 8))
            if not cases.noticed(READERS[name].open_arrays, opened, arrays):
                silent.add(place)
        path.write_bytes(whole)
        if name == "npz":  # fields that are of no use here, such as dates and permissions
            assert len(silent) * step < 170
        else:
            assert silent <= tensorflow_checkpoint.unused(path.name, len(whole))


@steps
def test_a_flipped_header_bit_gives_arrays_or_a_clear_error(tmp_path, step):
    _, (path,), _ = write_sample(tmp_path, "safetensors")
    whole = path.read_bytes()
    for place in range(0, 8 + int.from_bytes(whole[:8], "little"), step):
        path.write_bytes(cases.flipped(whole, place, place % 8))
        outcome = cases.outcome(safetensors.open_arrays, tmp_path)
        assert isinstance(outcome, dict) or "model.safetensors" in str(outcome)
