"""TensorFlow's checkpoints are read as TensorFlow wrote them, or refused; never read wrong."""

import base64
import json

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pretrain.formats import tensorflow
from pretrain.runtime.errors import UserError
from tests.support import array_files as cases
from tests.support.tensorflow_checkpoint import (
    HEADER,
    KINDS,
    WRITTEN,
    bundle,
    entry,
    message,
    part,
    raw,
    sliced,
    table,
)

GRID = np.arange(12, dtype="float32").reshape(4, 3)
HELD = {  # what it was asked to write; w was cut along its first axis, col along its second
    "b": np.array([1.5, -2], ml_dtypes.bfloat16),
    "bool": np.array([True, False]),
    "col": GRID,
    "f": np.zeros((2, 0), "float32"),
    "w": GRID,
    "x": np.array(2, "float32"),
    "y": np.arange(5),
}


@pytest.fixture
def written(tmp_path):
    for suffix, text in WRITTEN.items():
        (tmp_path / f"model.ckpt.{suffix}").write_bytes(base64.b64decode(text))
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


def test_flipped_bits_of_the_index_are_noticed_or_harmless(written):
    index = written.with_name("model.ckpt.index")
    whole = index.read_bytes()
    silent = []
    for place in range(len(whole)):
        index.write_bytes(cases.flipped(whole, place, place % 8))
        if not cases.noticed(tensorflow.open_arrays, index, HELD):
            silent.append(place)
    padding = range(len(whole) - 48 + 6, len(whole) - 8)  # behind the footer's two handles
    assert set(silent) <= set(padding)


def test_every_flipped_bit_of_the_data_is_noticed(written):
    for suffix in ("data-00000-of-00002", "data-00001-of-00002"):
        data = written.with_name(f"model.ckpt.{suffix}")
        whole = data.read_bytes()
        strings = range(52, 61) if suffix.startswith("data-00001") else ()
        for place in set(range(len(whole))) - set(strings):
            data.write_bytes(cases.flipped(whole, place, place % 8))
            with pytest.raises(UserError, match=rf"{suffix}: .* does not have its checksum"):
                cases.content(tensorflow.open_arrays, written)
        data.write_bytes(whole)


@pytest.mark.parametrize("suffix", WRITTEN)
def test_a_file_cut_short_anywhere_is_noticed_at_opening(written, suffix):
    path = written.with_name(f"model.ckpt.{suffix}")
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(UserError, match=suffix):
            tensorflow.open_arrays(written)


def test_a_missing_data_file_is_named(written):
    written.with_name("model.ckpt.data-00001-of-00002").unlink()
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


def test_compressed_blocks_are_refused(tmp_path):
    (tmp_path / "x.index").write_bytes(table([(b"", HEADER)], compression=1))
    with pytest.raises(UserError, match="compressed"):
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


@pytest.mark.parametrize("name", ["", "none", "a/none", "text", "text.index"])
def test_what_is_no_checkpoint_is_refused(tmp_path, name):
    for file in ("text", "text.index"):
        (tmp_path / file).write_text("no table, but longer than the forty-eight bytes of a footer")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=name or "empty"):
        tensorflow.open_arrays(tmp_path / (name or "empty"))


def published(name):
    folder = cases.PUBLISHED / name
    if not folder.exists():
        pytest.skip(f"{folder} is not there")
    return folder


def test_a_published_bert_has_the_shapes_of_its_config():
    folder = published("bert-tf")
    config = json.loads((folder / "bert_config.json").read_text())
    found = cases.content(tensorflow.open_arrays, folder)
    D, F = config["hidden_size"], config["intermediate_size"]
    assert found["bert/embeddings/word_embeddings"].shape == (config["vocab_size"], D)
    for i in range(config["num_hidden_layers"]):
        layer = f"bert/encoder/layer_{i}"
        assert found[f"{layer}/attention/self/query/kernel"].shape == (D, D)
        assert found[f"{layer}/intermediate/dense/kernel"].shape == (D, F)
    assert f"bert/encoder/layer_{config['num_hidden_layers']}/output/dense/bias" not in found


def test_a_published_gpt2_has_the_shapes_of_its_config():
    folder = published("gpt2-tf")
    config = json.loads((folder / "hparams.json").read_text())
    found = cases.content(tensorflow.open_arrays, folder)
    assert found["model/wte"].shape == (config["n_vocab"], config["n_embd"])
    assert found["model/wpe"].shape == (config["n_ctx"], config["n_embd"])
    for i in range(config["n_layer"]):
        weight = found[f"model/h{i}/attn/c_attn/w"]
        assert weight.shape == (1, config["n_embd"], 3 * config["n_embd"])


@pytest.mark.parametrize("kind", ["pre", "tune", "empty"])
def test_a_published_xlnet_has_the_shapes_of_its_config(kind):
    folder = published("xlnet-tf") / "tests" / f"test_checkpoint_{kind}"
    config = json.loads((folder / "xlnet_config.json").read_text())
    found = cases.content(tensorflow.open_arrays, folder)
    shape = (config["n_token"], config["d_model"])
    assert found["model/transformer/word_embedding/lookup_table"].shape == shape
    for i in range(config["n_layer"]):
        weight = found[f"model/transformer/layer_{i}/rel_attn/q/kernel"]
        assert weight.shape == (config["d_model"], config["n_head"], config["d_head"])
