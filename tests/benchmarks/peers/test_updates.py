"""PyTorch's updates lead to the losses that ours lead to."""

import numpy as np
import pytest

from tests.support import torch_peer

CNN = dict(name="text_cnn", D=6, filters=((2, 4), (3, 5)))
BLSTM = dict(name="recurrent", D=6, U=5)
ADADELTA = dict(name="adadelta", lr=1.0, rho=0.9, eps=1e-3)


@pytest.mark.parametrize("fused", [False, True], ids=["plain", "fused"])
@pytest.mark.parametrize(
    ("model", "pool", "optim"),
    [
        (CNN, "max", ADADELTA | dict(max_norm={"head/w_DC": 1.5})),
        (BLSTM, "tanh_attention", ADADELTA | dict(l2=0.1, clip_value=0.05)),
        (BLSTM, "max", dict(name="adamw", lr=0.01, weight_decay=0.5, clip=0.1)),
        (dict(name="text_rcnn", D=6, U=5, F=7), "max", dict(name="sgd", momentum=0.9, l2=0.5)),
    ],
    ids=["max-norm", "clip-value", "adamw", "sgd"],
)
def test_pytorch_takes_our_steps(tmp_path, model, pool, optim, fused):
    torch_peer.skip_without_torch()
    (_, ours), (_, peer) = torch_peer.compare(tmp_path, model, pool, steps=5, fused=fused, **optim)
    assert ours[-1] < ours[0]
    np.testing.assert_allclose(peer, ours, rtol=1e-4)
