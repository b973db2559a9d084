"""NumPy's own files: the same bytes each time, and no absurd shape, object or pickle is read."""

import io
import zipfile

import numpy as np
import pytest

from pretrain.formats import npz
from pretrain.runtime.errors import UserError
from tests.support import array_files as cases


def write(path, arrays):
    npz.write(path, cases.specs(arrays), iter(arrays.items()))


def test_the_same_arrays_give_the_same_bytes(tmp_path):
    for name in ("one", "two"):
        write(tmp_path / name, cases.arrays())
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_what_numpy_wrote_is_read_whatever_its_order(tmp_path, save):
    held = cases.arrays() | {"zeros": np.zeros((500, 500))}
    turned = {"big": held["a"].astype(">i4"), "fortran": np.asfortranarray(held["a"])}
    save(tmp_path / "w.npz", **held, **turned)
    held |= {"big": held["a"], "fortran": held["a"]}
    cases.assert_same(cases.content(npz.open_arrays, tmp_path / "w.npz"), held)


def test_objects_and_texts_are_named_and_not_opened(tmp_path):
    path, touched = tmp_path / "w.npz", tmp_path / "touched"
    np.savez(path, a=np.ones(2), b=np.array([cases.Evil(touched)]), c=np.array(["text"]))
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("notes.txt", "text")
    with npz.open_arrays(path) as file:
        assert list(file.specs) == ["a"]
        assert file.others == {"b": "object", "c": "<U4", "notes.txt": "no array"}
        cases.assert_same({"a": file.read("a")}, {"a": np.ones(2)})
    assert not touched.exists()


def header(shape: str) -> bytes:
    text = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}".encode()
    text += b" " * (-len(text) - 11 % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text


@pytest.mark.parametrize(
    "shape", ["(2**60,)", f"({2**60},)", f"({2**62}, 4)", "(-4,)", "(5,)", "4", ""]
)
def test_an_absurd_shape_is_refused_when_it_is_opened(tmp_path, shape):
    path = tmp_path / "w.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", header(shape) + bytes(16))
    with pytest.raises(UserError, match=r"w\.npz"):
        npz.open_arrays(path)


def test_a_name_that_is_there_twice_is_refused(tmp_path):
    data = io.BytesIO()
    np.save(data, np.ones(2))
    with zipfile.ZipFile(tmp_path / "w.npz", "w") as archive:
        archive.writestr("x.npy", data.getvalue())
        with pytest.warns(UserWarning, match="Duplicate"):
            archive.writestr("x.npy", data.getvalue())
    with pytest.raises(UserError, match="x is there twice"):
        npz.open_arrays(tmp_path / "w.npz")
