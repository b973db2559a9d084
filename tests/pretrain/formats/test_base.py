"""What all writers promise: one array at a time, and a file that is whole or not there."""

import signal
import subprocess
import sys
import tracemalloc
import weakref

import numpy as np
import pytest

from pretrain.formats import hdf5, npy_shards, npz, safetensors, tensorflow
from pretrain.runtime.errors import UserError
from tests.support import array_files as cases

WRITERS = {"hdf5": hdf5, "safetensors": safetensors, "npz": npz}
READERS = {**WRITERS, "npy_shards": npy_shards, "tensorflow": tensorflow}
SMALL = {name: np.full(1000, i, "float32") for i, name in enumerate("abc")}


@pytest.fixture(params=WRITERS)
def write(request, tmp_path):
    """Writes these to `tmp_path`/out."""
    module = WRITERS[request.param]

    def write(specs, arrays):
        module.write(tmp_path / "out", specs, arrays)

    write.open_arrays, write.name = module.open_arrays, request.param
    return write


def left(folder) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_only_one_array_at_a_time_is_in_memory(write):
    alive = []

    def drawn():
        for i in range(6):
            assert not [ref for ref in alive if ref() is not None]
            array = np.full((64, 1024), i, "float32")
            alive.append(weakref.ref(array))
            yield f"g/{i}", array
            del array

    specs = cases.specs({f"g/{i}": np.empty((64, 1024), "float32") for i in range(6)})
    write(specs, drawn())
    assert len(alive) == 6


def test_writing_and_reading_take_the_room_of_one_array(write, tmp_path):
    one = 1 << 20
    specs = {f"{i}": cases.Spec((one,), np.dtype("uint8")) for i in range(8)}
    write(specs, ((name, np.full(one, int(name), "uint8")) for name in specs))  # warms up
    whole = tmp_path / "out"
    (whole if whole.is_file() else whole / "model.safetensors").unlink()
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
    given = dict(SMALL)
    if fault == "order":
        given = {name: given[name] for name in "acb"}
    elif fault == "shape":
        given["b"] = given["b"][:-1]
    elif fault == "type":
        given["b"] = given["b"].astype("float64")
    elif fault == "missing":
        del given["c"]

    def drawn():
        for name, array in given.items():
            if fault == "error" and name == "c":
                raise ZeroDivisionError
            yield name, array

    with pytest.raises(ZeroDivisionError if fault == "error" else ValueError) as caught:
        write(cases.specs(SMALL), drawn())
    assert not isinstance(caught.value, UserError)
    assert left(tmp_path) == []


def test_a_full_disk_is_named_and_leaves_nothing(write, tmp_path):
    with cases.small_disk(6000), pytest.raises(UserError, match="written: File too large"):
        write(cases.specs(SMALL), iter(SMALL.items()))
    assert left(tmp_path) == []
    write(cases.specs(SMALL), iter(SMALL.items()))
    cases.assert_same(cases.content(write.open_arrays, tmp_path / "out"), SMALL)


def test_a_place_that_cannot_be_written_is_named(write, tmp_path):
    (tmp_path / "text").write_text("text")
    with pytest.raises(UserError, match=r"text/out.*: cannot be written: Not a directory"):
        WRITERS[write.name].write(tmp_path / "text" / "out", cases.specs(SMALL), SMALL.items())


KILLED = """
import importlib, os, signal, sys
import numpy as np
from pretrain.formats import Spec
def arrays():
    yield "a", np.ones(4, "float32")
    yield "b", np.ones(4, "float32")
    os.kill(os.getpid(), signal.SIGKILL)
module = importlib.import_module(f"pretrain.formats.{sys.argv[1]}")
specs = {name: Spec((4,), np.dtype("float32")) for name in "abc"}
module.write(sys.argv[2], specs, arrays(), *map(int, sys.argv[3:]))
"""


@pytest.mark.parametrize(
    ("name", "options"), [*((name, []) for name in WRITERS), ("safetensors", ["16"])]
)
def test_a_killed_writer_leaves_no_file_and_hinders_no_other(tmp_path, name, options):
    words = [sys.executable, "-c", KILLED, name, str(tmp_path / "out"), *options]
    process = subprocess.run(words, cwd=cases.ROOT, check=False)
    assert process.returncode == -signal.SIGKILL
    assert all(name.split("/")[-1].startswith(".") for name in left(tmp_path))
    module = WRITERS[name]
    with pytest.raises(UserError):
        module.open_arrays(tmp_path / "out")
    module.write(tmp_path / "out", cases.specs(SMALL), SMALL.items(), *map(int, options))
    cases.assert_same(cases.content(module.open_arrays, tmp_path / "out"), SMALL)


@pytest.mark.parametrize("name", READERS)
def test_nothing_there_is_a_clear_error(tmp_path, name):
    with pytest.raises(UserError, match="nothing"):
        READERS[name].open_arrays(tmp_path / "nothing")


def test_an_unknown_name_is_the_callers_mistake(write, tmp_path):
    write(cases.specs(SMALL), iter(SMALL.items()))
    with write.open_arrays(tmp_path / "out") as file, pytest.raises(KeyError):
        file.read("d")
