"""Attention by cuDNN's kernel, which holds no [L, J] if the mask is not written out."""

import jax
import jax.numpy as jnp

from modules.activation_sharding import find_device
from modules.masks import AttentionView

NAME = "cuDNN's kernel"


def refusal(q_BLHK, k_BJHK, v_BJHK, view: AttentionView, relative, dropout) -> str:
    """Says why the kernel does not take these on this machine; "": it does."""
    device, (_, L, _, K), J = find_device(), q_BLHK.shape, k_BJHK.shape[1]
    if device.platform != "gpu" or q_BLHK.dtype not in (jnp.bfloat16, jnp.float16):
        return "cuDNN's attention is in half precision, on GPUs"
    capability = str(getattr(device, "compute_capability", ""))
    # Not "gfx90a".
    if not capability.replace(".", "", 1).isdigit() or float(capability) < 8:
        return "cuDNN's attention is for Ampere and later"
    # The kernel never writes the probabilities, so nothing of ours can be dropped from them.
    if dropout is not None or relative is not None:
        return "cuDNN's attention drops no probabilities, and knows no distances"
    # The one position that makes a layer's parameters is under `vmap`, which the kernel does not
    # take everywhere.
    if K % 8 or K > 128 or L == 1:
        return "cuDNN's heads are at most 128 wide, in multiples of 8"
    # A mask that is written out goes in as a bias.
    if "mask" in choose_arguments(view, J) and (L % 128 or J % 128):
        return "cuDNN reads a mask in tiles of 128"
    return ""


def attend(q_BLHK, k_BJHK, v_BJHK, view: AttentionView, relative, dropout):
    """Computes `attention.reference` without relative terms and dropout."""
    del relative, dropout
    arguments = choose_arguments(view, k_BJHK.shape[1])
    if "mask" in arguments:
        # The kernel broadcasts over rows and heads, not over queries.
        shape = (*view.visible.shape[:2], q_BLHK.shape[1], k_BJHK.shape[1])
        arguments["mask"] = jnp.broadcast_to(view.visible, shape)
    return jax.nn.dot_product_attention(q_BLHK, k_BJHK, v_BJHK, implementation="cudnn", **arguments)


def choose_arguments(view: AttentionView, J: int) -> dict:
    """Translates a view to arguments of `jax.nn.dot_product_attention`."""
    is_in_order = view.slots_BP is None and J == view.L
    arguments, is_whole = view.mask.kernel_arguments(is_in_order)
    counts_memory = J != view.L and "key_value_seq_lengths" in arguments
    if view.is_banded is not None or counts_memory:
        # Known on the device alone, so the band is written out; causality is said all the same.
        # Lengths are of the row, without the memory that stands before it.
        arguments, is_whole = {n: x for n, x in arguments.items() if n == "is_causal"}, False
    # Arguments rather than the written-out mask wherever they say all: no [L, J] is read then.
    return arguments if is_whole else arguments | {"mask": view.visible}
