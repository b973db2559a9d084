"""Reads rows longer than a backbone's window, with the memory from window to window."""

from typing import Any

import jax.numpy as jnp

from modules.backbones import text_mask


def encode_windows(backbone: Any, tokens_BL, valid_BL, L: int, *, train: bool, segments_BL=None):
    """Reads rows by windows of L, each with the memory of the M positions before it: [B, L, D].

    No gradient goes through the memory.  Dai et al. 2019 (arXiv 1901.02860).
    """
    M = backbone.M
    memory = backbone.initial_memory(len(tokens_BL))
    segments_BL = jnp.zeros_like(tokens_BL) if segments_BL is None else segments_BL
    # Before the first window the memory is of no text: it is masked.
    valid_BJ = jnp.pad(valid_BL, ((0, 0), (M, 0)))
    segments_BJ = jnp.pad(segments_BL, ((0, 0), (M, 0)))
    windows: list[Any] = []
    # A loop of Python and no scan: the last window may be shorter.
    for begin in range(0, tokens_BL.shape[1], L):
        seen = slice(begin, begin + M + L)  # of what has M positions more in front
        mask = text_mask(
            backbone,
            memory_BM=valid_BJ[:, begin : begin + M],
            valid_BL=valid_BL[:, begin : begin + L],
        )
        h_BLD, memory = backbone(
            tokens_BL[:, begin : begin + L],
            mask=mask,
            segments_BL=segments_BJ[:, seen],
            memory=memory,
            # All of a window is remembered: these do not overlap, as those of pretraining do.
            reuse_len=0,
            train=train,
        )
        windows.append(h_BLD)
    return jnp.concatenate(windows, axis=1)
