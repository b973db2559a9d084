"""Every example is read once an epoch, and weighed once when it is scored."""

import numpy as np
import pytest

from finetune.inputs.batches import Examples
from pretrain.runtime.errors import UserError


def examples(n=10, B=4, **options):
    return Examples(
        {"x_B": np.arange(n), "y_BD": np.arange(2 * n).reshape(n, 2)}, B=B, L=3, **options
    )


def test_an_epoch_has_every_example_once_and_another_order_each_time():
    data = examples(shuffle=True, seed=1)
    read = np.concatenate([data.batch(step)["x_B"] for step in range(10)])
    epochs = read.reshape(4, 10)
    assert all(sorted(epoch) == list(range(10)) for epoch in epochs.tolist())
    assert len({tuple(epoch) for epoch in epochs.tolist()}) == 4
    np.testing.assert_array_equal(data.batch(3)["y_BD"][:, 0], 2 * data.batch(3)["x_B"])
    assert (data.batch(3)["weight_B"] == 1).all()


def test_a_batch_is_the_same_whoever_asks_and_for_whichever_rows():
    one, other = (examples(shuffle=True, seed=1) for _ in range(2))
    other.batch(7)
    np.testing.assert_array_equal(one.batch(2)["x_B"], other.batch(2)["x_B"])
    np.testing.assert_array_equal(one.batch(2)["x_B"][1:3], other.batch(2, slice(1, 3))["x_B"])
    assert one.fingerprint() == other.fingerprint()
    assert one.fingerprint() != examples(shuffle=True, seed=2).fingerprint()


def test_shapes_are_those_of_a_batch():
    data = examples()
    found = {name: (x.shape, x.dtype) for name, x in data.batch(0).items()}
    assert {name: (x.shape, x.dtype) for name, x in data.shapes().items()} == found


def test_scoring_reads_in_order_and_gives_fillers_no_weight():
    data = examples()
    assert data.steps_per_epoch == 3
    batches = [data.batch(step) for step in range(3)]
    assert np.concatenate([x["x_B"] for x in batches]).tolist() == [*range(10), 0, 0]
    assert np.concatenate([x["weight_B"] for x in batches]).tolist() == [1.0] * 10 + [0.0] * 2


def test_a_batch_is_cut_to_the_least_length_that_its_rows_fit_in():
    ends_B = np.array([2, 3, 5, 9, 1, 12, 4, 4])
    valid_BL = np.arange(12) < ends_B[:, None]
    arrays = {"valid_BL": valid_BL, "chars_BLW": np.ones((8, 12, 7)), "label_B": ends_B}
    whole, cut = (
        Examples(arrays, B=4, L=12, seed=3, shuffle=True, lengths=x) for x in ((), (8, 4, 99))
    )
    found = set()
    for step in range(8):
        batch, full = cut.batch(step), whole.batch(step)
        L = next(n for n in (4, 8, 12) if full["label_B"].max() <= n)
        assert batch["chars_BLW"].shape == (4, L, 7)
        np.testing.assert_array_equal(batch["valid_BL"], full["valid_BL"][:, :L])
        np.testing.assert_array_equal(batch["label_B"], full["label_B"])
        # Another process's rows are cut to the same length.
        assert cut.batch(step, slice(1, 2))["valid_BL"].shape == (1, L)
        found.add(L)
    assert len(found) > 1
    assert cut.fingerprint() != whole.fingerprint()


def test_options_of_an_example_are_cut_where_the_longest_ends():
    valid_BOL = np.arange(6) < np.array([[1, 3], [2, 2]])[..., None]
    data = Examples({"valid_BOL": valid_BOL}, B=2, L=6, lengths=(2, 3, 4))
    np.testing.assert_array_equal(data.batch(0)["valid_BOL"], valid_BOL[..., :3])


def test_nothing_to_read_is_refused():
    with pytest.raises(UserError, match="no examples"):
        examples(n=0)
