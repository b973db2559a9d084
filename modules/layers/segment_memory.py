"""Segment-level recurrence: states of earlier windows that a window attends to.

Dai et al. 2019 (arXiv 1901.02860), section 3.2.
"""

import flax.struct
import jax
import jax.numpy as jnp

from modules.activation_sharding import constrain_sharding


@flax.struct.dataclass
class Memory:
    """Inputs of every layer at the M positions before a window; no gradient goes there."""

    h_NBMD: jax.Array


def update_memory(memory_BMD, h_BLD, reuse_len: int):
    """Returns the last M states of the old memory and a window's first `reuse_len`; 0: of all."""
    if memory_BMD is None:  # there is none, and so it stays
        return None
    # Windows overlap: what is behind `reuse_len` is read again, and would be remembered twice.
    reused_BLD = h_BLD[:, : reuse_len or None].astype(memory_BMD.dtype)
    new_BMD = jnp.concatenate([memory_BMD, reused_BLD], axis=1)[:, -memory_BMD.shape[1] :]
    # Its letters are a layer's, so that it is laid out as the memory that the next step is given.
    return jax.lax.stop_gradient(constrain_sharding(new_BMD, "BMD"))
