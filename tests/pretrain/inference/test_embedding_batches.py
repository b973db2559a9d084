"""Rows of a batch are of about one length."""

from pretrain.inference.embedding_batches import RowBatcher

pytest_plugins = ["tests.support.tiny_models"]


def test_full_batches_have_rows_of_about_one_length(run):
    batcher = RowBatcher(run("bilm"), 1, tokens=64, cut=False)
    lengths = [30, 30, 8, 8, 8, 8, 8, 8, 8, 2, 2]
    texts = [" ".join(["no"] * n) for n in lengths]
    batches = batcher.make_block(0, texts).batches
    assert sorted(row.number for rows in batches for row in rows) == list(range(len(texts)))
    for rows in batches:
        L = batcher.padded_length(rows)
        full, part = batcher.batch_sizes(L)
        assert len(rows) <= part or 2 * min(len(row.ids) for row in rows) >= L
        assert len(rows) <= full
