"""HDF5: nested datasets come and go under full names, and no other file is read through one."""

import h5py
import numpy as np
import pytest

from pretrain.formats import hdf5
from pretrain.runtime.errors import UserError
from tests.support import array_files as cases


def test_files_of_h5py_are_read_in_any_layout(tmp_path):
    path, big = tmp_path / "w.hdf5", np.arange(600, dtype=">f4").reshape(20, 30)
    with h5py.File(path, "w") as file:
        file["z/big"] = big
        file.create_dataset("z/chunks", data=big, chunks=(7, 7), compression="gzip")
        file.create_dataset("zeros", data=np.zeros((1000, 1000)), compression="gzip")
        file["a/text"] = "not a number"
        file["a/empty"] = h5py.Empty("f4")
        file["same"] = file["z/big"]
    native = big.astype("float32")
    with hdf5.open_arrays(path) as file:
        assert list(file.specs) == ["same", "z/big", "z/chunks", "zeros"]
        assert file.others == {"a/text": "object", "a/empty": "empty"}
    zeros = np.zeros((1000, 1000))
    held = {"same": native, "z/big": native, "z/chunks": native, "zeros": zeros}
    cases.assert_same(cases.content(hdf5.open_arrays, path), held)


@pytest.fixture
def secret(tmp_path):
    """A file beside, that must not be read."""
    with h5py.File(tmp_path / "secret.h5", "w") as file:
        file["a"] = np.full(4, 42, "float32")
    (tmp_path / "secret.raw").write_bytes(np.full(4, 42, "float32").tobytes())
    return tmp_path


def virtual(secret):
    layout = h5py.VirtualLayout((4,), "float32")
    layout[:] = h5py.VirtualSource(secret / "secret.h5", "a", (4,))
    return layout


FOREIGN = {
    "external link": lambda file, at: file.__setitem__("g/x", h5py.ExternalLink("secret.h5", "/a")),
    "external group": lambda file, at: file.__setitem__("g/x", h5py.ExternalLink("secret.h5", "/")),
    "virtual": lambda file, at: file.create_virtual_dataset("g/x", virtual(at)),
    "external storage": lambda file, at: file.create_dataset(
        "g/x", (4,), "float32", external=[(str(at / "secret.raw"), 0, 16)]
    ),
}


@pytest.mark.parametrize("kind", FOREIGN)
def test_nothing_is_read_from_another_file(secret, kind):
    path = secret / "w.hdf5"
    with h5py.File(path, "w") as file:
        file["fine"] = np.ones(4)
        FOREIGN[kind](file, secret)
    with h5py.File(path) as file:  # it is there for those who do not look
        assert np.ravel(file["g/x/a" if kind == "external group" else "g/x"])[0] == 42
    with pytest.raises(UserError, match=r"w\.hdf5: .*/?g/x is (a link|kept in other files)"):
        hdf5.open_arrays(path)


def test_soft_links_and_groups_within_themselves_are_refused(tmp_path):
    for name, link in {"soft": h5py.SoftLink("/g"), "circle": None}.items():
        with h5py.File(tmp_path / name, "w") as file:
            file["g/x"] = np.ones(4)
            file["g/y"] = link or file["g"]
        with pytest.raises(UserError, match=rf"{name}: .*(is a link|in two places)"):
            hdf5.open_arrays(tmp_path / name)


def test_an_absurd_size_is_refused_before_it_is_allocated(tmp_path):
    path = tmp_path / "w.hdf5"
    with h5py.File(path, "w") as file:
        file.create_dataset("x", (2**40, 2**10), "float32", chunks=(2**10, 2**10))
        file.create_dataset("y", (2**40,), "float32")
    with hdf5.open_arrays(path) as file:
        for name in "xy":
            with pytest.raises(UserError, match=rf"w\.hdf5: .*{name} claims \d+ bytes"):
                file.read(name)


def test_a_broken_part_of_a_dataset_with_checksums_is_noticed(tmp_path):
    path, held = tmp_path / "w.hdf5", {"x": np.arange(100.0)}
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=held["x"], chunks=(100,), fletcher32=True)
        place = file["x"].id.get_chunk_info(0).byte_offset
    cases.assert_same(cases.content(hdf5.open_arrays, path), held)
    path.write_bytes(cases.flipped(path.read_bytes(), place + 9, 3))
    with pytest.raises(UserError, match=r"w\.hdf5: cannot be read"):
        cases.content(hdf5.open_arrays, path)
