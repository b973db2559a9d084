"""Sampling of exact numbers of positions: pure functions of a key, on device."""

import jax
import jax.numpy as jnp


def sample_positions(rng, eligible_L, goal):
    """Samples `goal` of the eligible positions, or all if there are fewer: bool [L]."""
    # Lots of ineligible positions are above 1, so their ranks come last.
    lot_L = jnp.where(eligible_L, jax.random.uniform(rng, eligible_L.shape), 2.0)
    # The first argsort orders the positions, the second gives each its rank.
    return (jnp.argsort(jnp.argsort(lot_L)) < goal) & eligible_L
