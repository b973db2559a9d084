"""Attention over what a mask shows: in plain products, by cuDNN, and which is used where."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from modules.activation_sharding import find_device
from modules.kernels.softmax import softmax
from modules.masks import Mask


class AttentionMask(NamedTuple):
    """A mask as the kernels take it.

    Attributes:
        visible: bool, broadcasts to [B, H, L, J].
        kernel_kwargs: the same as arguments of `jax.nn.dot_product_attention`; with "mask" where
            it has to be written out.
        local_band: bool, as `visible`; True where a banded layer sees.  None: no layer is banded.
    """

    visible: jax.Array
    kernel_kwargs: dict[str, Any]
    local_band: jax.Array | None = None

    def restrict_to_band(self, is_banded) -> "AttentionMask":
        """Narrows the mask to its band where a bool scalar, the layer's, is True."""
        if self.local_band is None:
            return self
        # The scan over layers traces one program for both kinds, so the narrowed mask is written
        # out: whether a layer is banded is not known when the kernel's arguments are chosen.
        visible = self.visible & (self.local_band | ~is_banded)
        causal = {name: x for name, x in self.kernel_kwargs.items() if name == "is_causal"}
        return AttentionMask(visible, causal | {"mask": visible})


def make_attention_mask(
    mask: Mask, L: int, *, slots_BP=None, window: int = 0, is_in_order: bool | None = None
) -> AttentionMask:
    """Prepares a mask for layers that share it.

    Args:
        L: positions of the sequence.
        slots_BP: positions of the queries; None: all in order.
        window: of banded layers, which see the last `window` positions alone; 0: no such layers.
        is_in_order: the queries are all positions in order; None: where there are no slots.
    """
    visible = mask.dense(L, slots_BP=slots_BP)[:, None]  # one mask for all heads
    is_in_order = slots_BP is None if is_in_order is None else is_in_order
    band = Mask(is_causal=True, window=window).dense(L, slots_BP=slots_BP) if window else None
    kernel_kwargs, is_whole = mask.kernel_arguments(is_in_order)
    # Arguments rather than the written-out mask wherever they say all: no [L, J] is read then.
    kernel_kwargs |= {} if is_whole else {"mask": visible}
    return AttentionMask(visible, kernel_kwargs, band if band is None else band[:, None])


def attend(q_BLHK, k_BJHK, v_BJHK, mask: AttentionMask, dropout: Callable | None = None):
    """Computes softmax(q k / sqrt K) v over the visible keys: [B, L, H, K].

    Args:
        dropout: a function of the probabilities; None: none.
    """
    # cuDNN's kernel never writes the probabilities, so nothing of ours can be dropped from them.
    if dropout is None and is_fusable(q_BLHK, k_BJHK, mask):
        return attend_fused(q_BLHK, k_BJHK, v_BJHK, mask)
    return attend_plainly(q_BLHK, k_BJHK, v_BJHK, mask, dropout)


def attend_plainly(q_BLHK, k_BJHK, v_BJHK, mask: AttentionMask, dropout: Callable | None = None):
    """Computes it by two products around a softmax in float32: the reference."""
    scale = q_BLHK.shape[-1] ** -0.5  # of the queries: the scores are more numbers
    a_BHLJ = jnp.einsum("BLHK,BJHK->BHLJ", q_BLHK * scale, k_BJHK)
    p_BHLJ = softmax(a_BHLJ, mask.visible, v_BJHK.dtype)
    return jnp.einsum("BHLJ,BJHK->BLHK", dropout(p_BHLJ) if dropout else p_BHLJ, v_BJHK)


def attend_fused(q_BLHK, k_BJHK, v_BJHK, mask: AttentionMask):
    """Computes it by cuDNN's kernel, which holds no [L, J] if the mask is not written out."""
    kernel_kwargs = dict(mask.kernel_kwargs)
    if "mask" in kernel_kwargs:
        # The kernel broadcasts over rows and heads, not over queries.
        shape = (*mask.visible.shape[:2], q_BLHK.shape[1], k_BJHK.shape[1])
        kernel_kwargs["mask"] = jnp.broadcast_to(kernel_kwargs["mask"], shape)
    return jax.nn.dot_product_attention(
        q_BLHK, k_BJHK, v_BJHK, implementation="cudnn", **kernel_kwargs
    )


def is_fusable(q_BLHK, k_BJHK, mask: AttentionMask) -> bool:
    """Checks if cuDNN's kernel takes these on this machine: half precision, Ampere or later."""
    device, (_, L, _, K) = find_device(), q_BLHK.shape
    if device.platform != "gpu" or q_BLHK.dtype not in (jnp.bfloat16, jnp.float16):
        return False
    # A mask that is written out goes in as a bias, which cuDNN reads in tiles of 128 only.
    is_tiled = L % 128 == k_BJHK.shape[1] % 128 == 0
    capability = str(getattr(device, "compute_capability", ""))
    # Ampere; not "gfx90a".
    is_recent = capability.replace(".", "", 1).isdigit() and float(capability) >= 8
    # Its heads are at most 128 wide, in multiples of 8.  The one position that makes a layer's
    # parameters is under `vmap`, which the kernel does not take everywhere.
    is_wide = K % 8 == 0 and K <= 128 and L > 1
    return is_recent and is_wide and (is_tiled or "mask" not in mask.kernel_kwargs)
