"""Cross entropy among a target and sampled negatives, in chunks of positions, with its gradient.

At most [B, P / chunks, S] exists at once; each chunk's gradients are made beside its loss, as in
`softmax_cross_entropy`.
"""

import jax
import jax.numpy as jnp

from modules.activation_sharding import constrain_sharding, num_shards, reduce_to_shards
from modules.kernels import split_positions


def reference(w_SD, shift_S, ids_S, h_BPD, target_logit_BP, targets_BP, weights_BP):
    """Computes the nats from all logits at once, with the gradient of autodiff."""
    logits_BPS = jnp.einsum("BPD,SD->BPS", h_BPD, w_SD).astype(jnp.float32) + shift_S
    logits_BPS = jnp.where(ids_S == targets_BP[..., None], -jnp.inf, logits_BPS)
    all_BPS = jnp.concatenate([target_logit_BP[..., None], logits_BPS], -1)
    return ((jax.nn.logsumexp(all_BPS, -1) - target_logit_BP) * weights_BP).sum()


def sampled_cross_entropy(
    w_SD, shift_S, ids_S, h_BPD, target_logit_BP, targets_BP, weights_BP, chunks: int
):
    """Computes the weighted sum of the cross entropy; a negative that is the target is left out.

    Args:
        w_SD: softmax rows of the negatives, in the compute dtype.
        shift_S: added to the logits of the negatives, float32.
        ids_S: ids of the negatives.
        h_BPD: states, in the compute dtype.
        target_logit_BP: logits of the targets, float32.
        targets_BP, weights_BP: ids, and float32 weights; weight 0 leaves a position out.
        chunks: pieces of the P positions; the last is filled up with weight 0.
    """
    # For 1280 positions, D=512 and S=8192, `reference` takes 1.08 times as long on one CPU core,
    # with 80 instead of 41 MiB; for D=128 and S=1024 it takes 0.81 times as long, with 10 instead
    # of 5 MiB.
    pieces = (split_positions(x, chunks) for x in (h_BPD, target_logit_BP, targets_BP, weights_BP))
    return _cross_entropy(w_SD, shift_S, ids_S, *pieces)


@jax.custom_vjp
def _cross_entropy(w_SD, shift_S, ids_S, h_cBPD, target_logit_cBP, targets_cBP, weights_cBP):
    def step(nats, chunk):
        return nats + _chunk(w_SD, shift_S, ids_S, *chunk)[0], None

    chunks = (h_cBPD, target_logit_cBP, targets_cBP, weights_cBP)
    return jax.lax.scan(step, jnp.zeros((), jnp.float32), chunks)[0]


def _chunk(w_SD, shift_S, ids_S, h_BPD, target_logit_BP, targets_BP, weights_BP):
    """Computes a chunk's loss, and its gradients with respect to both kinds of logits."""
    logits_BPS = jnp.einsum("BPD,SD->BPS", h_BPD, w_SD, preferred_element_type=jnp.float32)
    is_target_BPS = ids_S == targets_BP[..., None]
    # A negative that is the target would be counted twice.
    logits_BPS = jnp.where(is_target_BPS, -jnp.inf, logits_BPS + shift_S)
    logits_BPS = constrain_sharding(logits_BPS, "BPS")
    # The target is one of the candidates: without it the exponential of a sure target overflows.
    top_BP = jnp.maximum(logits_BPS.max(-1), target_logit_BP)
    exp_BPS, exp_BP = jnp.exp(logits_BPS - top_BP[..., None]), jnp.exp(target_logit_BP - top_BP)
    sum_BP = exp_BPS.sum(-1) + exp_BP
    nats = ((jnp.log(sum_BP) + top_BP - target_logit_BP) * weights_BP).sum()
    dlogits_BPS = (exp_BPS * (weights_BP / sum_BP)[..., None]).astype(h_BPD.dtype)
    # Softmax less the target's one; the negatives' targets are all 0.
    return nats, dlogits_BPS, (exp_BP / sum_BP - 1) * weights_BP


def _forward(w_SD, shift_S, ids_S, h_cBPD, target_logit_cBP, targets_cBP, weights_cBP):
    # Each device adds up its own rows' share; the shares meet once, after the last chunk.
    devices = num_shards("B")

    def step(sums, chunk):
        nats, dlogits_BPS, dtarget_BP = _chunk(w_SD, shift_S, ids_S, *chunk)
        dlogits, h = (x.reshape(devices, -1, x.shape[-1]) for x in (dlogits_BPS, chunk[0]))
        dw_BSD = jnp.einsum("BPS,BPD->BSD", dlogits, h, preferred_element_type=jnp.float32)
        new = (nats, dw_BSD, dlogits.astype(jnp.float32).sum(1))
        dh_BPD = jnp.einsum("BPS,SD->BPD", dlogits_BPS, w_SD)
        return jax.tree.map(jnp.add, sums, new), (dh_BPD, dtarget_BP)

    dw_BSD = constrain_sharding(jnp.zeros((devices, *w_SD.shape), jnp.float32), "BSD")
    dshift_BS = constrain_sharding(jnp.zeros((devices, *shift_S.shape), jnp.float32), "BS")
    sums = (jnp.zeros((), jnp.float32), dw_BSD, dshift_BS)
    chunks = (h_cBPD, target_logit_cBP, targets_cBP, weights_cBP)
    (nats, dw_BSD, dshift_BS), (dh_cBPD, dtarget_cBP) = jax.lax.scan(step, sums, chunks)
    dw_SD = reduce_to_shards(dw_BSD, "SD").astype(w_SD.dtype)
    return nats, (dw_SD, reduce_to_shards(dshift_BS, "S"), dh_cBPD, dtarget_cBP)


def _backward(residuals, dnats):
    # The loss is one number: its gradients were made forwards, and are only scaled here.
    dw_SD, dshift_S, dh_cBPD, dtarget_cBP = (dnats.astype(x.dtype) * x for x in residuals)
    return dw_SD, dshift_S, None, dh_cBPD, dtarget_cBP, None, None


_cross_entropy.defvjp(_forward, _backward)
