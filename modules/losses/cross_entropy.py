"""Cross entropy of a large softmax, as sums that add up over devices and batches."""

import jax
import jax.numpy as jnp

from modules.activation_sharding import constrain_sharding
from modules.kernels import softmax_cross_entropy as kernel
from modules.kernels import split_positions
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
        "loss" in nats, which is trained, and "accuracy"; float32.  Of the logits that are trained
        in half precision several may be the highest, and each counts as right.
    """
    nats, hits = kernel.softmax_cross_entropy(w_VD, bias_V, h_BPD, targets_BP, weights_BP, chunks)
    return _name_sums(nats, hits, weights_BP)


def add_up(nats_BP, hits_BP, weights_BP) -> Metrics:
    """Computes the metrics of `softmax_cross_entropy` from the results of `score_targets`."""
    nats, hits = -(nats_BP * weights_BP).sum(), (hits_BP * weights_BP).sum()
    return _name_sums(nats, hits, weights_BP)


def _name_sums(nats, hits, weights_BP) -> Metrics:
    weight = weights_BP.sum()
    return {
        "loss": Sum(nats, weight, "nats", train=True),
        "accuracy": Sum(hits, weight, "share"),
    }


def score_targets(h_BPD, w_VD, bias_V, targets_BP, *, chunks: int = 4):
    """Computes the log-likelihood in nats of each target, and whether none is likelier.

    Args: as `softmax_cross_entropy`.

    Returns:
        ([B, P] float32, [B, P] bool).
    """
    w_VD = w_VD.astype(h_BPD.dtype)

    def score(chunk):
        h_BPD, targets_BP = chunk
        logits_BPV = jnp.einsum("BPD,VD->BPV", h_BPD, w_VD, preferred_element_type=jnp.float32)
        logits_BPV = logits_BPV if bias_V is None else logits_BPV + bias_V
        logits_BPV = constrain_sharding(logits_BPV, "BPV")
        own_BP = jnp.take_along_axis(logits_BPV, targets_BP[..., None], axis=-1)[..., 0]
        nats_BP = own_BP - jax.nn.logsumexp(logits_BPV, axis=-1)
        return nats_BP, own_BP >= logits_BPV.max(-1)

    pieces = tuple(split_positions(x, chunks) for x in (h_BPD, targets_BP))
    B, P = targets_BP.shape
    # The last chunk was filled up to the others' length: what it gave beyond P is cut off.
    return tuple(jnp.moveaxis(x, 0, 1).reshape(B, -1)[:, :P] for x in jax.lax.map(score, pieces))


def histogram(ids_BP, weights_BP, V: int) -> Sum:
    """Counts each id by weight: a "unigram" sum with a total of [V], float32."""
    counts_V = jnp.zeros(V, jnp.float32).at[ids_BP.reshape(-1)].add(weights_BP.reshape(-1))
    return Sum(counts_V, weights_BP.sum(), "unigram")
