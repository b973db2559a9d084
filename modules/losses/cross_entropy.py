"""Cross entropy of a large softmax, as sums that add up over devices and batches."""

import jax.numpy as jnp

from modules.kernels import softmax_cross_entropy as kernel
from modules.metrics import Metrics, Sum


def softmax_cross_entropy(
    h_BPD, w_VD, bias_V, targets_BP, weights_BP, *, chunks: int = 4
) -> Metrics:
    """Computes cross entropy and accuracy of a softmax that never holds all its logits.

    Args:
        h_BPD: states, in the compute dtype.
        w_VD, bias_V: the softmax's rows and biases, float32; None: no biases.
        targets_BP, weights_BP: ids, and float32 weights; weight 0 leaves a position out.
        chunks: pieces of the P positions; at most [B, P / chunks, V] exists at once.

    Returns:
        "loss" in nats, which is trained, and "accuracy"; float32.
    """
    nats, hits = kernel.softmax_cross_entropy(w_VD, bias_V, h_BPD, targets_BP, weights_BP, chunks)
    weight = weights_BP.sum()
    return {
        "loss": Sum(nats, weight, "nats", train=True),
        "accuracy": Sum(hits, weight, "share"),
    }


def histogram(ids_BP, weights_BP, V: int) -> Sum:
    """Counts each id by weight: a "unigram" sum with a total of [V], float32."""
    counts_V = jnp.zeros(V, jnp.float32).at[ids_BP.reshape(-1)].add(weights_BP.reshape(-1))
    return Sum(counts_V, weights_BP.sum(), "unigram")
