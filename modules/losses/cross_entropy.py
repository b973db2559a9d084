"""Losses as (total, weight) pairs: they add across devices, microbatches and batches."""

import jax
import jax.numpy as jnp

from modules.activation_sharding import constrain_sharding, num_shards, reduce_to_shards


def softmax_cross_entropy(h_BPD, w_VD, bias_V, targets_BP, weights_BP, *, chunks: int = 4):
    """Cross entropy and accuracy of a softmax that never holds all its logits.

    The positions are taken in chunks.  All that a chunk's logits are needed for - loss, hits
    and, where a gradient is asked for, the gradients - is done before the next chunk begins, so
    no product with the vocabulary is repeated and at most [B, P / chunks, V] exists at once.

    Args:
        h_BPD: states, in the compute dtype.
        w_VD, bias_V: the softmax's rows and biases, float32; None: no biases.
        targets_BP, weights_BP: ids, and float32 weights; weight 0 leaves a position out.
        chunks: pieces of the P positions; the last is filled up with weight 0.

    Returns:
        {"loss": (summed nats, weight), "accuracy": (weighted hits, weight)}, float32.
    """
    pieces = (split(x, chunks) for x in (h_BPD, targets_BP, weights_BP))
    nats, hits = _cross_entropy(w_VD, bias_V, *pieces)
    weight = weights_BP.sum()
    return {"loss": (nats, weight), "accuracy": (hits, weight)}


def histogram(ids_BP, weights_BP, V: int):
    """How often each id was, by weight: ([V], the weight in all), float32."""
    counts_V = jnp.zeros(V, jnp.float32).at[ids_BP.reshape(-1)].add(weights_BP.reshape(-1))
    return counts_V, weights_BP.sum()


def split(x_BP, chunks: int):
    """[B, P, ...] -> [chunks, B, P / chunks, ...], filled up with zeros."""
    B, P, *rest = x_BP.shape
    x_BP = jnp.pad(x_BP, [(0, 0), (0, -P % chunks)] + [(0, 0)] * len(rest))
    return jnp.moveaxis(x_BP.reshape(B, chunks, -1, *rest), 1, 0)


@jax.custom_vjp
def _cross_entropy(w_VD, bias_V, h_cBPD, targets_cBP, weights_cBP):
    w_VD = _gathered(w_VD, h_cBPD.dtype)

    def step(sums_B, chunk):
        *own_B, _ = _chunk(w_VD, bias_V, *chunk)
        return jax.tree.map(jnp.add, sums_B, own_B), None

    sums_B, _ = jax.lax.scan(step, _no_sums(h_cBPD), (h_cBPD, targets_cBP, weights_cBP))
    return tuple(x_B.sum() for x_B in sums_B)


def _gathered(w_VD, dtype):
    """The softmax's rows in full width, once for all chunks: a loop would fetch them in each."""
    if w_VD.dtype != dtype:  # fetched in the narrow type, not made narrow where they arrive
        w_VD = jax.lax.optimization_barrier(w_VD.astype(dtype))
    return constrain_sharding(w_VD, "V_")


def _no_sums(h_cBPD):
    """Loss and hits of each row before the first chunk; the rows meet after the last."""
    zero_B = constrain_sharding(jnp.zeros(h_cBPD.shape[1], jnp.float32), "B")
    return [zero_B, zero_B]


def _chunk(w_VD, bias_V, h_BPD, targets_BP, weights_BP):
    """Loss and hits of one chunk by row, and the gradient of the loss by its logits."""
    logits_BPV = jnp.einsum("BPD,VD->BPV", h_BPD, w_VD, preferred_element_type=jnp.float32)
    logits_BPV = constrain_sharding(logits_BPV if bias_V is None else logits_BPV + bias_V, "BPV")
    top_BP1 = logits_BPV.max(-1, keepdims=True)
    exp_BPV = jnp.exp(logits_BPV - top_BP1)
    sum_BP1 = exp_BPV.sum(-1, keepdims=True)
    own_BP = jnp.take_along_axis(logits_BPV, targets_BP[..., None], axis=-1)[..., 0]
    nats = ((jnp.log(sum_BP1) + top_BP1)[..., 0] - own_BP) * weights_BP
    hits = (own_BP >= top_BP1[..., 0]) * weights_BP
    is_target_BPV = jnp.arange(w_VD.shape[0]) == targets_BP[..., None]
    slope_BPV = (exp_BPV / sum_BP1 - is_target_BPV) * weights_BP[..., None]
    return nats.sum(1), hits.sum(1), slope_BPV.astype(h_BPD.dtype)


def _forward(w_VD, bias_V, h_cBPD, targets_cBP, weights_cBP):
    # Each device adds up its own rows' share of dw; the shares meet once, after the last chunk.
    groups, (V, D) = num_shards("B"), w_VD.shape
    w_cast_VD = _gathered(w_VD, h_cBPD.dtype)

    def step(sums, chunk):
        *own_B, slope_BPV = _chunk(w_cast_VD, bias_V, *chunk)
        own = [x.reshape(groups, -1, x.shape[-1]) for x in (slope_BPV, chunk[0])]
        dw_BVD = jnp.einsum("BPV,BPD->BVD", *own, preferred_element_type=jnp.float32)
        db_BV = bias_V if bias_V is None else jnp.einsum("BPV->BV", own[0].astype(jnp.float32))
        dh_BPD = jnp.einsum("BPV,VD->BPD", slope_BPV, w_cast_VD)
        new = (own_B, dw_BVD, db_BV)
        return jax.tree.map(jnp.add, sums, new), dh_BPD

    shares = constrain_sharding(jnp.zeros((groups, V, D), jnp.float32), "BVD")
    biases = (
        bias_V if bias_V is None else constrain_sharding(jnp.zeros((groups, V), jnp.float32), "BV")
    )
    sums = (_no_sums(h_cBPD), shares, biases)
    sums, dh_cBPD = jax.lax.scan(step, sums, (h_cBPD, targets_cBP, weights_cBP))
    own_B, dw_BVD, db_BV = sums
    slopes = (
        reduce_to_shards(dw_BVD, "VD"),
        db_BV if db_BV is None else reduce_to_shards(db_BV, "V"),
        dh_cBPD,
    )
    return tuple(x_B.sum() for x_B in own_B), slopes


def _backward(kept, slopes):
    dw_VD, db_V, dh_cBPD = kept
    slope = slopes[0]  # of the total; hits have no gradient
    dw_VD, db_V = jax.tree.map(lambda x: slope * x, (dw_VD, db_V))
    return dw_VD, db_V, (slope * dh_cBPD).astype(dh_cBPD.dtype), None, None


_cross_entropy.defvjp(_forward, _backward)
