"""Operations with a hand-written derivative or a fast form, one a file."""

import jax.numpy as jnp

# The `jax.named_scope` of a branch that few batches take: what a step takes at least leaves it out.
RARELY = "rarely"


def split_positions(x_BP, chunks: int):
    """Cuts [B, P, ...] to [chunks, B, P / chunks, ...], filled up with zeros."""
    B, P, *rest = x_BP.shape
    # Positions are cut, not rows: every device works on its rows in every chunk.
    x_BP = jnp.pad(x_BP, [(0, 0), (0, -P % chunks)] + [(0, 0)] * len(rest))
    return jnp.moveaxis(x_BP.reshape(B, chunks, -1, *rest), 1, 0)
