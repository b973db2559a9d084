"""TensorFlow's checkpoints are read as TensorFlow wrote them, or refused; never read wrong."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pretrain.formats import tensorflow
from pretrain.runtime.errors import UserError
from tests.support import array_files as cases
from tests.support.tensorflow_checkpoint import (
    GRID,
    HEADER,
    HELD,
    KINDS,
    bundle,
    entry,
    message,
    part,
    raw,
    sliced,
    table,
    write,
)


@pytest.fixture
def written(tmp_path):
    write(tmp_path)
    return tmp_path / "model.ckpt"


def test_what_tensorflow_wrote_is_read_and_strings_are_named(written):
    cases.assert_same(cases.content(tensorflow.open_arrays, written), HELD)
    with tensorflow.open_arrays(written) as file:
        assert list(file.specs) == list(HELD)
        assert file.others == {"s": "string"}
        with pytest.raises(KeyError):
            file.read("s")


def test_many_variables_in_several_blocks_and_shards_are_read(tmp_path):
    rng = np.random.default_rng(1)
    held = {
        f"model/layer_{i}/{name}": rng.normal(size=(i % 3, 2)).astype("float32")
        for i in range(30)
        for name in ("attention/kernel", "attention/bias")
    }
    held |= {f"of/{kind}": np.ones(3, kind) for kind in KINDS if kind != "bfloat16"}
    bundle(tmp_path / "model", held)
    cases.assert_same(cases.content(tensorflow.open_arrays, tmp_path / "model"), held)


def test_a_broken_and_a_missing_data_file_are_named(written):
    data = written.with_name("model.ckpt.data-00001-of-00002")
    data.write_bytes(cases.flipped(data.read_bytes(), 3, 5))
    with pytest.raises(UserError, match=r"data-00001-of-00002: .* does not have its checksum"):
        cases.content(tensorflow.open_arrays, written)
    data.unlink()
    with pytest.raises(UserError, match="data-00001-of-00002: cannot be read: No such file"):
        tensorflow.open_arrays(written)


@pytest.mark.parametrize(
    "changed",
    [
        {"offset": 2**60},
        {"offset": 2**64 - 4},
        {"size": 2**60},
        {"shape": message((2, message((1, 2**40))), (2, message((1, 2**23))))},
        {"shape": message((2, message((1, 2**64 - 1))))},
        {"shape": message((3, 1))},
        {"shard": 2},
        {"shard": 2**31},
        {"crc": b"text"},
    ],
    ids=str,
)
def test_an_absurd_entry_is_refused_when_it_is_opened(tmp_path, changed):
    bundle(tmp_path / "model", {"a": GRID, "b": GRID}, **changed)
    with pytest.raises(UserError, match="model"):
        tensorflow.open_arrays(tmp_path / "model").read("b")


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=40), st.booleans())
def test_any_bytes_with_right_checksums_give_a_clear_answer(tmp_path_factory, value, is_header):
    items = [(b"", value)] if is_header else [(b"", HEADER), (b"x", value)]
    path = tmp_path_factory.mktemp("any") / "x.index"
    path.write_bytes(table(items))
    found = cases.outcome(tensorflow.open_arrays, path)
    assert isinstance(found, dict) or "x." in str(found)


@pytest.mark.parametrize(
    ("header", "why"),
    [
        (message((1, 2), (2, 1)), "big-endian"),
        (message((1, 2), (3, message((1, 9), (2, 2)))), "version 2"),
    ],
)
def test_what_the_header_says_is_heeded(tmp_path, header, why):
    (tmp_path / "x.index").write_bytes(table([(b"", header)]))
    with pytest.raises(UserError, match=why):
        tensorflow.open_arrays(tmp_path / "x")


ROWS = {(start, stop): ((start, stop - start), (0, 3)) for start in range(4) for stop in range(5)}


@pytest.mark.parametrize(
    ("slices", "fine"),
    [
        ([ROWS[0, 2], ROWS[2, 4]], True),
        ([ROWS[2, 4], ROWS[0, 2]], True),
        ([ROWS[0, 2]], False),
        ([ROWS[0, 2], ROWS[3, 4]], False),
        ([ROWS[0, 3], ROWS[2, 4]], False),
        ([((0, 4), (0, 2)), ((0, 4), (2, 1))], True),
        ([((0, 2), (0, 3)), ((2, 2), (0, 2)), ((2, 2), (2, 1))], False),
        ([((0, 4), (0, 4))], False),
        ([((0, 12),)], False),
    ],
    ids=str,
)
def test_slices_make_a_variable_if_they_lie_side_by_side(tmp_path, slices, fine):
    items = {
        part("w", *slice_): GRID[tuple(np.s_[a : a + n] for a, n in slice_)]
        for slice_ in slices
        if len(slice_) == 2
    }
    data, entries = b"", {b"w": sliced(GRID, *slices)}
    for key, array in items.items():
        entries[key] = entry(array, (0, len(data)))
        data += array.tobytes()
    prefix = raw(tmp_path, sorted(entries.items()))
    (tmp_path / "raw.data-00000-of-00002").write_bytes(data)
    if fine:
        cases.assert_same(cases.content(tensorflow.open_arrays, prefix), {"w": GRID})
    else:
        with pytest.raises(UserError, match=r"raw\.index: "):
            tensorflow.open_arrays(prefix)


def test_a_slice_that_is_not_there_is_named(tmp_path):
    items = [(part("w", *ROWS[0, 2]), entry(GRID[:2])), (b"w", sliced(GRID, *ROWS.values()))]
    with pytest.raises(UserError, match=r"w is partitioned, and its part .* is not there"):
        tensorflow.open_arrays(raw(tmp_path, items))


@pytest.mark.parametrize("bits", [0, 5, 6, 7, 12, 13, 14, 20, 27, 34, 55, 56, 62])
def test_the_numbers_in_keys_of_slices_sort_as_they_are(bits):
    """The point of OrderedCode, and its lengths: n bytes hold what is below 2^(7n - 1)."""
    keys = [
        tensorflow.encode_ordered(value) for value in (-1, 0, 2**bits - 1, 2**bits, 2**bits + 1)
    ]
    assert keys == sorted(keys)
    assert len(keys[3]) == (bits + 1) // 7 + 1


def test_a_checkpoint_is_found_by_prefix_index_or_folder(written):
    for path in (written, str(written), f"{written}.index", written.parent):
        assert list(tensorflow.open_arrays(path).specs) == list(HELD)


def test_a_folder_of_several_names_them_unless_one_counts(written):
    folder = written.parent
    bundle(folder / "model.ckpt-9", {"a": GRID})
    with pytest.raises(UserError, match=r"several, name one: model\.ckpt-9, model\.ckpt$"):
        tensorflow.open_arrays(folder)
    state = folder / "checkpoint"
    for text in ('"model.ckpt-9"', '"/where/it/was/model.ckpt-9"'):
        state.write_text(f"model_checkpoint_path: {text}\nall_model_checkpoint_paths: {text}\n")
        assert list(tensorflow.open_arrays(folder).specs) == ["a"]
    state.write_text('model_checkpoint_path: "gone"\n')
    with pytest.raises(UserError, match="several"):
        tensorflow.open_arrays(folder)
