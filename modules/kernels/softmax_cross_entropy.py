"""Cross entropy of a softmax whose logits never exist all at once, with its gradient.

The positions are taken in chunks.  All that a chunk's logits are needed for - loss, hits and,
where a gradient is asked for, the gradients - is done before the next chunk begins: no product
with the vocabulary is repeated, and at most [B, P / chunks, V] exists at once.
"""

import math

import jax
import jax.numpy as jnp

from modules.activation_sharding import (
    choose_form,
    constrain_sharding,
    num_shards,
    reduce_to_shards,
)
from modules.kernels import split_positions

# The vocabulary's rows are padded to a multiple of this.  Where rows of logits begin anywhere in
# memory, cuBLAS has no fast product, and XLA copies them to where they begin evenly: compiled for
# an H100, loss and gradients of 32 x 1024 positions, D=768 and V=50,257 move 57 GB so in float32,
# and padded in bfloat16 32 GB.
FORMS = {"gpu": 128, "default": 1}


def reference(w_VD, bias_V, h_BPD, targets_BP, weights_BP):
    """Computes (nats, hits) from all logits at once, with the gradient of autodiff."""
    logits_BPV = jnp.einsum("BPD,VD->BPV", h_BPD, w_VD.astype(h_BPD.dtype)).astype(jnp.float32)
    logits_BPV = logits_BPV if bias_V is None else logits_BPV + bias_V
    log_BPV = jax.nn.log_softmax(logits_BPV)
    nats_BP = -jnp.take_along_axis(log_BPV, targets_BP[..., None], axis=-1)[..., 0]
    hits_BP = logits_BPV.argmax(-1) == targets_BP
    return (nats_BP * weights_BP).sum(), (hits_BP * weights_BP).sum()


def softmax_cross_entropy(w_VD, bias_V, h_BPD, targets_BP, weights_BP, chunks: int):
    """Computes the weighted sums of the cross entropy and of the hits.

    Args:
        w_VD, bias_V: the softmax's rows and biases, float32; None: no biases.
        h_BPD: states, in the compute dtype.
        targets_BP, weights_BP: ids, and float32 weights; weight 0 leaves a position out.
        chunks: pieces of the P positions; the last is filled up with weight 0.

    Returns:
        (nats, hits), float32; hits have no gradient.
    """
    # On one CPU core `reference` takes 1.2 times as long for 320 positions, D=256 and V=30,522, and
    # 1.4 times for 2048 positions and V=50,257, with 1178 instead of 298 MiB.
    pieces = (split_positions(x, chunks) for x in (h_BPD, targets_BP, weights_BP))
    return _cross_entropy(w_VD, bias_V, *pieces)


@jax.custom_vjp
def _cross_entropy(w_VD, bias_V, h_cBPD, targets_cBP, weights_cBP):
    w_VD, bias_V = _gather_rows(w_VD, bias_V, h_cBPD.dtype)

    def step(sums_B, chunk):
        # In float32: of two logits that are one in bfloat16 either would count as the highest.
        *new_B, _ = _chunk(w_VD, bias_V, jnp.float32, *chunk)
        return jax.tree.map(jnp.add, sums_B, new_B), None

    sums_B, _ = jax.lax.scan(step, _zero_sums(h_cBPD), (h_cBPD, targets_cBP, weights_cBP))
    return tuple(x_B.sum() for x_B in sums_B)


def _gather_rows(w_VD, bias_V, dtype):
    """Returns rows in the compute dtype and float32 biases or None, both padded to a multiple."""
    padding = -len(w_VD) % math.lcm(choose_form(FORMS), num_shards("V"))
    bias_V = bias_V if bias_V is None else jnp.asarray(bias_V)
    # In full width once for all chunks: constrained within the loop, they would be in each.
    if w_VD.dtype != dtype:  # gathered in the narrow dtype, not made narrow where they arrive
        w_VD = jax.lax.optimization_barrier(w_VD.astype(dtype))
    if padding:
        # Columns behind the vocabulary have probability 0.
        bias_V = jnp.zeros(len(w_VD)) if bias_V is None else bias_V
        bias_V = jnp.pad(bias_V, (0, padding), constant_values=-jnp.inf)
        w_VD = jnp.pad(w_VD, ((0, padding), (0, 0)))
    return constrain_sharding(w_VD, "V_"), bias_V


def _zero_sums(h_cBPD):
    # By row: rows meet after the last chunk.
    zero_B = constrain_sharding(jnp.zeros(h_cBPD.shape[1], jnp.float32), "B")
    return [zero_B, zero_B]


def _chunk(w_VD, bias_V, dtype, h_BPD, targets_BP, weights_BP):
    """Computes loss and hits of a chunk by row, and the gradient with respect to its logits.

    Args:
        dtype: in which the logits are written; all sums are in float32.
    """
    logits_BPV = jnp.einsum("BPD,VD->BPV", h_BPD, w_VD, preferred_element_type=dtype)
    logits_BPV = constrain_sharding(logits_BPV, "BPV")
    target_BP = jnp.take_along_axis(logits_BPV, targets_BP[..., None], axis=-1)[..., 0]
    logits_BPV, target_BP = (x.astype(jnp.float32) for x in (logits_BPV, target_BP))
    if bias_V is not None:
        logits_BPV, target_BP = logits_BPV + bias_V, target_BP + bias_V[targets_BP]
    top_BP1 = logits_BPV.max(-1, keepdims=True)  # so that no exponential overflows
    exp_BPV = jnp.exp(logits_BPV - top_BP1)
    sum_BP1 = exp_BPV.sum(-1, keepdims=True)
    nats = ((jnp.log(sum_BP1) + top_BP1)[..., 0] - target_BP) * weights_BP
    # A target that ties for the highest is a hit; an argmax would be another pass over the logits.
    hits = (target_BP >= top_BP1[..., 0]) * weights_BP
    # Compared rather than scattered, so that it fuses into the gradient and splits with V.
    is_target_BPV = jnp.arange(w_VD.shape[0]) == targets_BP[..., None]
    dlogits_BPV = (exp_BPV / sum_BP1 - is_target_BPV) * weights_BP[..., None]
    return nats.sum(1), hits.sum(1), dlogits_BPV.astype(h_BPD.dtype)


def _forward(w_VD, bias_V, h_cBPD, targets_cBP, weights_cBP):
    # Each device adds up its own rows' share of dw; the shares meet once, after the last chunk.
    devices, vocabulary = num_shards("B"), len(w_VD)
    has_bias, dtype = bias_V is not None, h_cBPD.dtype
    w_VD, bias_V = _gather_rows(w_VD, bias_V, dtype)

    def step(sums, chunk):
        *new_B, dlogits_BPV = _chunk(w_VD, bias_V, dtype, *chunk)
        shares = [x.reshape(devices, -1, x.shape[-1]) for x in (dlogits_BPV, chunk[0])]
        dw_BVD = jnp.einsum("BPV,BPD->BVD", *shares, preferred_element_type=jnp.float32)
        db_BV = None
        if has_bias:
            # In float32: a column of thousands of bfloat16 numbers would lose its digits.
            db_BV = choose_form(SUMS)(shares[0].astype(jnp.float32))
        dh_BPD = jnp.einsum("BPV,VD->BPD", dlogits_BPV, w_VD)
        return jax.tree.map(jnp.add, sums, (new_B, dw_BVD, db_BV)), dh_BPD

    dw_BVD = constrain_sharding(jnp.zeros((devices, *w_VD.shape), jnp.float32), "BVD")
    db_BV = None
    if has_bias:
        db_BV = constrain_sharding(jnp.zeros((devices, len(w_VD)), jnp.float32), "BV")
    sums = (_zero_sums(h_cBPD), dw_BVD, db_BV)
    sums, dh_cBPD = jax.lax.scan(step, sums, (h_cBPD, targets_cBP, weights_cBP))
    sums_B, dw_BVD, db_BV = sums
    dw_VD = reduce_to_shards(dw_BVD, "VD")[:vocabulary]
    db_V = None if db_BV is None else reduce_to_shards(db_BV, "V")[:vocabulary]
    return tuple(x_B.sum() for x_B in sums_B), (dw_VD, db_V, dh_cBPD)


def _sum_positions(x_BPV):
    return jnp.einsum("BPV->BV", x_BPV)


def _sum_by_product(x_BPV):
    # Behind a barrier, or the compiler would make a sum of it.
    ones_BP = jax.lax.optimization_barrier(jnp.ones_like(x_BPV[..., 0]))
    return jnp.einsum("BPV,BP->BV", x_BPV, ones_BP)


# A sum over rows holds up the products beside it on a CPU: with two threads a training step of
# XLNet (4 layers, 256 wide, 168 positions, V=32,000) takes 1.07 times as long.
SUMS = {"cpu": _sum_by_product, "default": _sum_positions}


def _backward(residuals, grads):
    dw_VD, db_V, dh_cBPD = residuals
    dnats, _ = grads  # hits are counts, without a gradient
    dw_VD, db_V = jax.tree.map(lambda x: dnats * x, (dw_VD, db_V))
    return dw_VD, db_V, (dnats * dh_cBPD).astype(dh_cBPD.dtype), None, None


_cross_entropy.defvjp(_forward, _backward)
