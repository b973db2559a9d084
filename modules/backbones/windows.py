"""Reads rows longer than a backbone's window, with the memory from window to window."""

from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

from modules.backbones import text_mask


def encode_windows(backbone: Any, tokens_BL, valid_BL, L: int, *, train: bool, segments_BL=None):
    """Reads rows by windows of L, each with the memory of the M positions before it: [B, L, D]."""
    # No gradient goes through the memory (Dai et al. 2019, arXiv 1901.02860).
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


def carries_state(backbone: Any) -> bool:
    """Returns whether a backbone goes on from a state, as an RNN that reads from left to right."""
    return backbone.is_causal and getattr(backbone, "is_recurrent", False)


def encode_chunks(backbone: Any, tokens, valid_BL, L: int, *, train: bool):
    """Reads rows by chunks of L, each from the state that the one before left: [B, L, D].

    BPT3C of Howard & Ruder 2018 (arXiv 1801.06146), section 3.3: the states are those of the rows
    read at once, gradients stay within a chunk, and each draws dropout of its own.
    """
    length = tokens.shape[1]
    if length <= L or backbone.is_initializing():
        return backbone(tokens, mask=text_mask(backbone, valid_BL=valid_BL), train=train).h

    def read(backbone, memory, chunk):
        tokens, valid_BL = chunk
        mask = text_mask(backbone, valid_BL=valid_BL)
        memory = jax.lax.stop_gradient(memory)
        h_BLD, memory = backbone(tokens, mask=mask, memory=memory, train=train)
        return memory, h_BLD

    # A scan over one program: a text of thousands of words would compile for minutes otherwise.
    scan = nn.scan(
        # The backward pass reads a chunk again, so that memory is that of one.
        nn.remat(read, prevent_cse=False),
        variable_broadcast="params",
        split_rngs={"params": False, "dropout": True},
    )
    chunks = split_chunks(tokens, L), split_chunks(valid_BL, L)
    _, h_NBLD = scan(backbone, backbone.initial_memory(len(tokens)), chunks)
    B, D = len(tokens), h_NBLD.shape[-1]
    return jnp.moveaxis(h_NBLD, 0, 1).reshape(B, -1, D)[:, :length]


def split_chunks(x_BL, L: int):
    """Splits positions into chunks of L, the last one filled up with zeros: [N, B, L, ...]."""
    B, length, *rest = x_BL.shape
    x_BL = jnp.pad(x_BL, [(0, 0), (0, -length % L), *[(0, 0)] * len(rest)])
    return jnp.moveaxis(x_BL.reshape(B, -1, L, *rest), 1, 0)
