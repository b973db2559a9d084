"""Who may look at whom, as booleans: True means visible, everywhere."""

import jax.numpy as jnp


def full(valid_BL):
    """Every position sees every real one. [B, L] -> [B, L, L]."""
    return jnp.broadcast_to(valid_BL[:, None, :], (*valid_BL.shape, valid_BL.shape[1]))


def causal(L: int, J: int, same_length: bool = False):
    """[1, L, J]: each of L positions, the last of J, sees itself and what came before it.

    With `same_length` the earliest are cut off one by one, so that all see equally many
    (Transformer-XL's evaluation; needs J > L to differ from `causal`).
    """
    i_L1, j_J = jnp.arange(L)[:, None], jnp.arange(J)
    visible_LJ = j_J <= i_L1 + (J - L)
    return (visible_LJ & (j_J >= i_L1) if same_length else visible_LJ)[None]


def permuted(rank_BJ, seen_by_BL):
    """What has a rank is visible to whoever sees ranks above it: [B, J], [B, L] -> [B, L, J]."""
    return rank_BJ[:, None, :] < seen_by_BL[:, :, None]


def before(place_BL, J: int, window: int = 0):
    """[B, L, J]: what stands at a place sees itself and what came before: all, or a window's."""
    j_J, i_BL1 = jnp.arange(J), place_BL[..., None]
    return (j_J <= i_BL1) & (j_J > i_BL1 - window) if window else j_J <= i_BL1


def within(lengths_B, J: int):
    """[B, 1, J]: the first so many of a row are there to be seen."""
    return jnp.arange(J) < lengths_B[:, None, None]


def same(groups_BL, groups_BJ):
    """[B, L, J]: everybody sees their own group."""
    return groups_BL[:, :, None] == groups_BJ[:, None, :]
