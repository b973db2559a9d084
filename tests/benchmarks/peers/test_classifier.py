"""PyTorch's classifiers compute what ours do from the same weights."""

import numpy as np
import pytest

from tests.support import torch_peer

CNN = dict(name="text_cnn", D=6, filters=((2, 4), (3, 5), (4, 3)))
RECURRENT = dict(name="recurrent", D=6, U=5)
RCNN = dict(name="text_rcnn", D=6, U=5, F=7)


@pytest.mark.parametrize(
    ("model", "pool"),
    [
        (CNN, "max"),
        (CNN | dict(activation="tanh", tables=("learned", "fixed")), "max"),
        (RECURRENT, "max"),
        (RECURRENT, "tanh_attention"),
        (RECURRENT | dict(N=2, merge="concat"), "mean"),
        (RECURRENT | dict(Z=1, cell="gru"), "last"),
        (RECURRENT | dict(cell="rnn", activation="relu"), "attention"),
        (RCNN, "max"),
        (RCNN | dict(cell="lstm"), "max"),
    ],
    ids=["cnn", "multichannel", "blstm", "att-blstm", "deep", "gru", "rnn", "rcnn", "rcnn-lstm"],
)
def test_pytorch_computes_our_logits_from_our_weights(tmp_path, model, pool):
    torch_peer.skip_without_torch()
    (ours_BC, _), (peer_BC, _) = torch_peer.compare(tmp_path, model, pool)
    assert np.ptp(ours_BC) > 0.1
    np.testing.assert_allclose(peer_BC, ours_BC, atol=1e-5)
