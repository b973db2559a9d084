"""Blocks of a file are whole or not there."""

import json

import h5py
import numpy as np
import pytest

from pretrain.inference import embedding_file
from pretrain.inference.vector_tables import read_table
from pretrain.runtime.errors import UserError
from tests.support import array_files


def read(path) -> dict[str, np.ndarray]:
    with h5py.File(path) as file:
        return {name: x[:] for name, x in file.items() if name != embedding_file.INDEX}


def test_tokens_of_a_line_of_any_length_are_kept(tmp_path):
    tokens = [f"token {n}" for n in range(20_000)]
    with h5py.File(tmp_path / "a.h5", "w") as file:
        embedding_file.add_sentence(file, 0, tokens, np.zeros((2, 20_000, 1), np.float32))
    with h5py.File(tmp_path / "a.h5") as file:
        assert json.loads(file["0"].attrs["tokens"]) == tokens


def test_a_full_disk_is_named_and_what_was_done_stays_done(tmp_path):
    blocks = embedding_file.Blocks(tmp_path / "out.h5", {})
    with blocks.create_block() as file:
        embedding_file.add_sentence(file, 0, ["a"], np.ones((1, 1, 4), "float32"))
    full = r"00000001\.h5: cannot be written: File too large"
    large = np.ones((1, 1000, 4), "float32")
    with (
        array_files.small_disk(6000),
        pytest.raises(UserError, match=full),
        blocks.create_block() as file,
    ):
        embedding_file.add_sentence(file, 1, ["a"], large)
    assert blocks.done == 1
    blocks.join(["a"])
    assert list(read(tmp_path / "out.h5")) == ["0"]


def write_blocks(out, sentences) -> embedding_file.Blocks:
    """Writes a vector for each sentence, of lower-cased tokens."""
    blocks = embedding_file.Blocks(out, {})
    with blocks.create_block() as file:
        for i, sentence in enumerate(sentences):
            embedding_file.add_sentence(file, i, sentence.lower().split(), np.ones(4, "float32"))
    return blocks


def test_a_sentence_keeps_its_text_where_others_have_its_tokens(tmp_path):
    sentences, out = ["A b", "a b", "A b", "c", "c", ""], tmp_path / "out.h5"
    write_blocks(out, sentences).join(sentences)
    assert read_table(out).texts == sentences
    with h5py.File(out, "a") as file:  # as files were written before
        for i in range(len(sentences)):
            del file[str(i)].attrs["text"]
    assert read_table(out).texts == ["", "a b", "A b", "c", "c", ""]


@pytest.mark.parametrize("name", ["out.h5", "out.npy", "out.parquet"])
@pytest.mark.parametrize(("sentences", "more"), [(["a"], "fewer"), (["a", "b", "c"], "more")])
def test_as_many_sentences_as_vectors_are_asked_for(tmp_path, name, sentences, more):
    blocks = write_blocks(tmp_path / name, ["a", "b"])
    with pytest.raises(UserError, match=f"2 sentences have vectors, and the text has {more}"):
        blocks.join(sentences)
    assert not (tmp_path / name).exists()
    blocks.join(["a", "b"])
    assert len(read_table(tmp_path / name).vectors_ND) == 2
