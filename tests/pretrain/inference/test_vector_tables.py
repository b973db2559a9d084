"""Tables of sentence vectors come back as they were written, and are whole or absent."""

import re
from pathlib import Path

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

from pretrain.inference import vector_tables
from pretrain.runtime.errors import UserError
from tests.support import array_files

VECTORS = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
BLOCKS = [(["a", "b", ""], VECTORS[:3]), (["d", "é"], VECTORS[3:])]
SAID = {"step": 3, "pool": "mean"}


def test_endings_of_other_files_are_refused():
    assert [vector_tables.is_table(Path(x)) for x in ("a.npy", "a.h5", "a")] == [True, False, False]
    with pytest.raises(UserError, match=r"no vectors are written as \.csv: name out\.h5, or"):
        vector_tables.is_table(Path("a.csv"))


@pytest.mark.parametrize("ending", vector_tables.ENDINGS)
def test_a_table_comes_back_as_it_was_written(tmp_path, ending):
    path = tmp_path / f"new/out{ending}"
    vector_tables.write_table(path, iter(BLOCKS), 5, 3, SAID)
    found = vector_tables.read_table(path)
    np.testing.assert_array_equal(found.vectors_ND, VECTORS)
    texts = [text for block, _ in BLOCKS for text in block]
    assert found[1:] == ((None, None) if ending == ".npy" else (texts, SAID))
    with array_files.small_disk(50), pytest.raises(UserError, match="File too large"):
        vector_tables.write_table(tmp_path / f"b{ending}", iter(BLOCKS), 5, 3, SAID)
    assert not list(tmp_path.glob("*b.*"))


def test_columns_are_text_and_lists_of_one_length(tmp_path):
    vector_tables.write_table(tmp_path / "out.parquet", iter(BLOCKS), 5, 3, SAID)
    types = {field.name: str(field.type) for field in parquet.read_schema(tmp_path / "out.parquet")}
    assert types["text"] == "string"
    assert re.fullmatch(r"fixed_size_list<.*float.*>\[3\]", types["vector"])


@pytest.mark.parametrize("name", ["a.npy", "a.parquet", "a.h5"])
def test_what_holds_no_vectors_is_named(tmp_path, name):
    with pytest.raises(UserError, match=f"^there is no {tmp_path / name}$"):
        vector_tables.read_table(tmp_path / name)
    (tmp_path / name).write_text("nothing of the kind")
    with pytest.raises(UserError, match=f"{name}: holds no vectors of sentences"):
        vector_tables.read_table(tmp_path / name)


@pytest.mark.parametrize("column", [[1.0], ["a"], [["a"]]])
def test_a_column_of_no_vectors_is_refused(tmp_path, column):
    path = tmp_path / "a.parquet"
    parquet.write_table(pyarrow.table({"text": ["a"], "vector": column}), path)
    with pytest.raises(UserError, match=r"a\.parquet: holds no vectors .*: a column 'vector' of"):
        vector_tables.read_table(path)
