"""Rows beyond a tokenizer's pieces are padding."""

import pathlib
import shutil

import numpy as np

from pretrain.conversion import config_fields, exporter, importer
from pretrain.data.tokenizers import wordpiece
from pretrain.inference.trained_run import load_run
from tests.support.bert_release import leaves


def test_padded_tables_and_added_pieces_go_out_and_in_again(run, tmp_path, monkeypatch):
    monkeypatch.setattr(config_fields, "PADDED_TO", [4])
    padded = pathlib.Path(shutil.copytree(run, tmp_path / "padded"))
    own = load_run(run).tokenizer
    tokens = wordpiece.Tokenizer(
        [*own.pieces[:-3], "cab19"],
        handle_chinese_chars=False,
        base=own.V - 3,
        added=[dict(content="cab19")],
    )
    tokens.save(padded / "tokenizer")
    said = []
    exporter.export_weights(padded, tmp_path / "out", lambda _: None)
    importer.import_weights(tmp_path / "out", tmp_path / "again", said.append)
    again = load_run(tmp_path / "again")
    assert (
        said[0] == f"rows {own.V - 2} to {own.V - 1} of the embedding are padding, and no piece's"
    )
    assert leaves(again.workdir) == leaves(run)
    assert (again.config.model.V, again.tokenizer.V) == (own.V, own.V - 2)
    text = ["a CAB19 b\u4e2d" + "a" * 150]
    np.testing.assert_array_equal(again.tokenizer.encode(text)[0], tokens.encode(text)[0])
