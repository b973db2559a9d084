"""Contrastive losses: a row's other view is to be more alike to it than the batch's other rows.

Vectors are compared by their cosines.  Softmaxes are over the rows of the whole batch, whatever
devices these lie on: under `jit` the gradient goes to all of them.
"""

import jax
import jax.numpy as jnp

from modules.activation_sharding import constrain_sharding

HIDDEN = -1e9  # in place of a logit that does not count; an infinite one would give NaN gradients


def nt_xent(a_BD, b_BD, temperature: float, weight_B=None):
    """Computes NT-Xent of two views, the mean of a row's both directions: [B] float32.

    Each view of a row is to find the other among the 2B - 1 vectors that are not itself (Chen et
    al. 2020, arXiv 2002.05709; ConSERT's equation 1).  The mean over rows is the papers' mean over
    2B; ConSERT's code adds the directions up, which is twice as much.

    Args:
        weight_B: 0 of rows that only fill up the batch: nobody's negatives; None: all count.
    """
    a_BD, b_BD = normalize_vectors(a_BD), normalize_vectors(b_BD)
    near_B = (a_BD * b_BD).sum(-1) / temperature
    across, within = _hide_rows(weight_B, len(a_BD)), _hide_rows(weight_B, len(a_BD), itself=True)
    total_B = jnp.zeros(len(a_BD))
    for one_BD, other_BD in ((a_BD, b_BD), (b_BD, a_BD)):
        logits = (
            across(compare_rows(one_BD, other_BD) / temperature),
            within(compare_rows(one_BD, one_BD) / temperature),
        )
        total_B += jax.nn.logsumexp(jnp.concatenate(logits, 1), axis=1) - near_B
    return total_B / 2


def in_batch_softmax(
    a_BD,
    b_BD,
    temperature: float,
    negatives_BD=None,
    hard_negative_weight: float = 0.0,
    weight_B=None,
):
    """Computes SimCSE's loss, in which each row of `a` is to find its own of `b`: [B] float32.

    Gao et al. 2021 (arXiv 2104.08821, equations 1 and 5); with `temperature` 1 / scale it is the
    multiple negatives ranking loss of sentence-transformers.

    Args:
        negatives_BD: a hard negative of each row, which all rows are compared with; None: none.
        hard_negative_weight: logarithm of the weight of a row's own hard negative.
        weight_B: as for `nt_xent`.
    """
    a_BD, b_BD = normalize_vectors(a_BD), normalize_vectors(b_BD)
    hide = _hide_rows(weight_B, len(a_BD))
    logits = [hide(compare_rows(a_BD, b_BD) / temperature)]
    if negatives_BD is not None:
        hard_BO = compare_rows(a_BD, normalize_vectors(negatives_BD)) / temperature
        logits.append(hide(hard_BO + hard_negative_weight * jnp.eye(len(a_BD))))
    near_B = (a_BD * b_BD).sum(-1) / temperature
    return jax.nn.logsumexp(jnp.concatenate(logits, 1), axis=1) - near_B


def normalize_vectors(x_BD):
    """Scales vectors to length 1 in float32, [B, D]; one of zeros stays so."""
    x_BD = x_BD.astype(jnp.float32)
    # The root of at least this much: the gradient of a length 0 would be NaN.
    squares_B1 = jnp.maximum(jnp.square(x_BD).sum(-1, keepdims=True), 1e-24)
    return x_BD * jax.lax.rsqrt(squares_B1)


def compare_rows(a_BD, b_BD):
    """Computes the products of all rows of `a` with all rows of `b`: [B, O], O = B."""
    # Devices hold their rows of `a` and all rows of `b`, which are a few numbers each.
    b_OD = constrain_sharding(b_BD, "__")
    # At full precision: at a temperature of .05 the error of bfloat16 products would count.
    return jnp.einsum("BD,OD->BO", a_BD, b_OD, precision=jax.lax.Precision.HIGHEST)


def _hide_rows(weight_B, B: int, itself: bool = False):
    """Returns a function that hides the logits of rows without weight, and of a row with itself."""
    is_hidden_BO = jnp.eye(B, dtype=bool) if itself else jnp.zeros((B, B), bool)
    if weight_B is not None:
        is_hidden_BO |= weight_B == 0
    return lambda logits_BO: jnp.where(is_hidden_BO, HIDDEN, logits_BO)
