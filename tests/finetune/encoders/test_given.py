"""States that are there already are handed on, and nothing is added to the loss."""

import numpy as np

from finetune.encoders.given import Given
from tests.support.arrays import draw


def test_states_of_the_batch_are_returned():
    batch, encoder = {"h_BLD": draw(2, 3, 4)}, Given(True)
    np.testing.assert_array_equal(encoder(batch, train=True), batch["h_BLD"])
    np.testing.assert_array_equal(encoder.each(batch, train=False), batch["h_BLD"][None])
    assert encoder.add_losses({}, batch["h_BLD"], batch, train=True) == {}
