"""Attention by JAX's splash kernel for TPUs, which leaves out the blocks that a mask hides.

It takes rows of any length, where ours holds all scores of some queries, and half of the blocks of
a causal mask; it drops no probabilities and knows no distances.
"""

import jax
import jax.numpy as jnp
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel as splash
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask as masks

from modules.activation_sharding import find_device, map_shards, num_shards
from modules.masks import AttentionView

NAME = "splash attention"
LANES = 128
BLOCKS = (512, 256, 128)  # of queries and of keys: the largest that divides the positions
FIELDS = {"is_causal", "window", "groups_BL", "lengths_B", "valid_BL", "hides_slots"}
HIDDEN = -(2**31)  # the document of keys that nobody sees


def refusal(q_BLHK, k_BJHK, v_BJHK, view: AttentionView, relative, dropout) -> str:
    """Says why the kernel does not take these; "": it does."""
    (B, L, H, _), J = q_BLHK.shape, k_BJHK.shape[1]
    if dropout is not None or relative is not None:
        return "splash attention drops no probabilities, and knows no distances"
    if set(view.mask.fields()) - FIELDS or view.is_banded is not None or view.sees_itself:
        return "splash attention knows causality, a window, documents and padding only"
    if view.slots_BP is not None or J != L or L % LANES:
        return f"splash attention takes all positions in order, a multiple of {LANES}"
    if B % num_shards("B") or H % num_shards("H"):
        return "rows or heads do not divide over the devices"
    return ""


def attend(q_BLHK, k_BJHK, v_BJHK, view: AttentionView, relative, dropout):
    """Computes `attention.reference` without relative terms and dropout."""
    del relative, dropout
    L, K = q_BLHK.shape[1], q_BLHK.shape[3]
    is_interpreted = find_device().platform != "tpu"

    def call(q_BLHK, k_BLHK, v_BLHK, group_BL, key_group_BL):
        one = _choose_mask(view, L)
        block = next(size for size in BLOCKS if L % size == 0)
        scores = q_BLHK.shape[0] * q_BLHK.shape[2] * count_blocks(view, L // block, block)
        kernel = splash.make_splash_mha(
            masks.MultiHeadMask([one] * q_BLHK.shape[2]),
            block_sizes=splash.BlockSizes(block, block, None, block, block, None, block, block),
            head_shards=1,  # of the heads that are here
            q_seq_shards=1,
            interpret=is_interpreted,
        )
        heads_BHLK = [x.swapaxes(1, 2) for x in (q_BLHK, k_BLHK, v_BLHK)]
        ids = splash.SegmentIds(group_BL, key_group_BL)
        # The name says what the compiler cannot know: of two products with each score.
        with jax.named_scope(f"splash_flops_{4 * K * scores * block**2}"):
            return [jax.vmap(kernel)(*heads_BHLK, ids).swapaxes(1, 2)]

    # The kernel does not scale scores.
    arrays = (q_BLHK * K**-0.5, k_BJHK, v_BJHK, *_number_documents(view, *q_BLHK.shape[:2]))
    (o_BLHK,) = map_shards(call, arrays, ["B_H"] * 3 + ["B"] * 2, ["B_H"])
    if view.mask.lengths_B is None and view.mask.valid_BL is None:
        return o_BLHK
    # The kernel's mean for a query that sees no key is of keys that it must not see.
    return jnp.where(view.visible[:, 0].any(-1)[..., None, None], o_BLHK, 0)


def _number_documents(view: AttentionView, B: int, L: int):
    """Numbers the documents of queries and of keys, int32 [B, L] each: they see their own."""
    mask = view.mask
    group_BL = jnp.zeros((B, L), jnp.int32) if mask.groups_BL is None else mask.groups_BL
    key_group_BL = group_BL = group_BL.astype(jnp.int32)
    if mask.lengths_B is not None:
        is_text_BL = jnp.arange(L) < mask.lengths_B[:, None]
        key_group_BL = jnp.where(is_text_BL, key_group_BL, HIDDEN)
    if mask.valid_BL is not None:
        key_group_BL = jnp.where(mask.valid_BL, key_group_BL, HIDDEN)
    return group_BL, key_group_BL


def count_blocks(view: AttentionView, count: int, block: int) -> int:
    """Counts the blocks of scores that are computed of a head, whatever the documents."""
    window, is_causal = view.mask.window, view.mask.is_causal
    firsts = [max(0, (n * block - window + 1) // block) if window else 0 for n in range(count)]
    return sum((n + 1 if is_causal else count) - first for n, first in enumerate(firsts))


def _choose_mask(view: AttentionView, L: int):
    window, is_causal = view.mask.window, view.mask.is_causal
    if window:  # the position itself is one of the `window`
        return masks.LocalMask((L, L), (window - 1, 0 if is_causal else None), offset=0)
    return masks.CausalMask((L, L)) if is_causal else masks.FullMask((L, L))
