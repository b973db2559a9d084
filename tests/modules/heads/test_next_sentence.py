"""The loss of whether a text follows is the classifier's written out, by the rows' weights."""

import jax
import numpy as np

from modules.heads.next_sentence import NextSentenceHead


def test_loss_and_accuracy_are_those_written_out():
    rng = np.random.default_rng(0)
    pooled_BD = rng.normal(0, 1, (3, 4)).astype(np.float32)
    is_next_B, weight_B = np.array([1, 0, 1]), np.array([1.0, 2.0, 0.0])
    head = NextSentenceHead(4, init_scale=1.0)
    sums, given = head.init_with_output(jax.random.key(0), pooled_BD, is_next_B, weight_B)
    logits_BC = pooled_BD.astype(float) @ np.asarray(given["params"]["next_DC"])
    log_BC = logits_BC - np.log(np.exp(logits_BC).sum(1, keepdims=True))
    label_B = 1 - is_next_B
    loss = -(log_BC[range(3), label_B] * weight_B).sum()
    np.testing.assert_allclose(sums["nsp_loss"].total, loss, rtol=1e-5)
    assert float(sums["nsp_accuracy"].total) == (weight_B * (logits_BC.argmax(1) == label_B)).sum()
    assert float(sums["nsp_loss"].weight) == weight_B.sum()
