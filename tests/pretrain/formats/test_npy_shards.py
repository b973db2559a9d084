"""GPT-1's pieces are joined to arrays, and what is wrong with one is named."""

import io
import pickle

import numpy as np
import pytest

from pretrain.formats import npy_shards
from pretrain.runtime.errors import UserError
from tests.support import array_files as cases


@pytest.fixture
def pieces(tmp_path):
    cases.write_shards(tmp_path)
    return tmp_path


def test_arrays_are_those_of_gpt1s_own_code(pieces):
    whole = np.concatenate([np.load(pieces / f"params_{n}.npy") for n in range(3)], 0)
    ends = np.cumsum([np.prod(shape, dtype=int) for shape in cases.SHAPES])
    parts = np.split(whole, ends)[:-1]
    held = {str(i): part.reshape(cases.SHAPES[i]) for i, part in enumerate(parts)}
    cases.assert_same(cases.content(npy_shards.open_arrays, pieces), held)


OTHER_SHAPES = [
    *("[[29], [1]]", "[[28]]", "[]", f"[[{2**60}]]", f"[[{2**80}, 0, 1], [28]]", "[[-29]]"),
    *("[[29.0]]", "[29]", '["ab"]', "{", '{"a": [29]}', "[[true, 29]]"),
]


@pytest.mark.parametrize("shapes", OTHER_SHAPES)
def test_shapes_that_are_not_those_of_the_pieces_are_refused(pieces, shapes):
    (pieces / "params_shapes.json").write_text(shapes)
    with pytest.raises(UserError, match=pieces.name):
        npy_shards.open_arrays(pieces)


@pytest.mark.parametrize("number", range(3))
def test_a_missing_piece_is_noticed(pieces, number):
    (pieces / f"params_{number}.npy").unlink()
    with pytest.raises(UserError, match=f"params_{number}.npy" if number < 2 else "14 numbers"):
        npy_shards.open_arrays(pieces)


@pytest.mark.parametrize("what", ["pickle", "objects", "zip", "matrix", "another type"])
def test_a_piece_of_something_else_is_refused(pieces, what):
    path = pieces / "params_1.npy"
    data = io.BytesIO()
    if what == "pickle":
        data.write(pickle.dumps(cases.Evil(pieces / "touched")))
    elif what == "zip":
        np.savez(data, np.arange(9, dtype="float32"))
    else:
        arrays = {
            "objects": np.array([cases.Evil(pieces / "touched")] * 9),
            "matrix": np.ones((3, 3), "float32"),
            "another type": np.ones(9),
        }
        np.save(data, arrays[what])
    path.write_bytes(data.getvalue())
    with pytest.raises(UserError, match="the types" if what == "another type" else "params_1"):
        npy_shards.open_arrays(pieces)
    assert not (pieces / "touched").exists()


def test_a_folder_without_them_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"params_shapes\.json: cannot be read: No such file"):
        npy_shards.open_arrays(tmp_path)
    (tmp_path / "params_shapes.json").write_text("[]")
    with pytest.raises(UserError, match=r"there is no params_0\.npy"):
        npy_shards.open_arrays(tmp_path)
