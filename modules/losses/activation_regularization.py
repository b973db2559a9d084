"""AR and TAR: penalties of an RNN's last states (Merity et al. 2017, arXiv 1708.01009)."""

import jax.numpy as jnp

from modules.metrics import Sum


def penalize_size(h_BLD, weights_BL, alpha: float) -> Sum:
    """Computes AR: `alpha` times the mean square of the states, as they are after dropout.

    Args:
        weights_BL: of the positions; 0: not in the mean.
    """
    squares_BL = jnp.square(h_BLD.astype(jnp.float32)).mean(-1)
    return Sum(alpha * (squares_BL * weights_BL).sum(), weights_BL.sum(), train=True)


def penalize_change(h_BLD, weights_BL, beta: float) -> Sum:
    """Computes TAR: `beta` times the mean square of what states change from position to position.

    Args:
        h_BLD: the states before dropout, which differ as the text makes them differ.
        weights_BL: of the positions; a change counts by the lesser of its two.
    """
    changes_BLD = jnp.diff(h_BLD.astype(jnp.float32), axis=1)
    both_BL = jnp.minimum(weights_BL[:, 1:], weights_BL[:, :-1])
    return Sum(beta * (jnp.square(changes_BLD).mean(-1) * both_BL).sum(), both_BL.sum(), train=True)
