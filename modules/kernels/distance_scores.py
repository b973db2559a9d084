"""Scores of queries with the distances to their keys (Dai et al. 2019, arXiv 1901.02860).

A distance is query minus key: how far back the key lies.  Tables of distances run from the
furthest back, M + L - 1 (the last query and the first of M + L keys), down to -L, which no pair
has but which rounds R to M + 2L and lets every shift be a change of row length.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from modules.activation_sharding import choose_form, num_shards
from modules.kernels import distance_products, relative_shift
from modules.kernels.distance_products import choose_rows
from modules.kernels.relative_shift import cut_rows
from modules.kernels.skew import skew_rows


class RelativeTerms(NamedTuple):
    """Terms of a score beside that of a query and a key (Dai et al. 2019, Yang et al. 2019).

    Attributes:
        content_HK, position_HK, segment_HK: added to a query before it meets a key, the distance
            to it, its segment.
        other_HK: what a key of another segment answers; one of the same segment answers 0.
        r: distances, projected: [R, H, K], [2, R, H, K] by direction or [B, R, H, K] by row, from
            the furthest back, M + L - 1, down to -L.
        backward_B: which of the two directions a row reads; None: there is one, or a table a row.
        block: query rows whose distances are scored together.
    """

    content_HK: jax.Array
    position_HK: jax.Array
    segment_HK: jax.Array
    other_HK: jax.Array
    r: jax.Array
    backward_B: jax.Array | None = None
    block: int = 128

    def score(self, q_BPHK, view):
        """Scores queries with the distances to keys and with the keys' segments: [B, H, P, J].

        Args:
            q_BPHK: queries of the view, an `AttentionView` of `modules.masks`.
        """
        # The scale is multiplied into the queries, which have K numbers where scores have J.
        scale = q_BPHK.shape[-1] ** -0.5
        q_position_BPHK = (q_BPHK + self.position_HK) * scale
        if view.slots_BP is None:
            a_BHPJ = score_distances(q_position_BPHK, self.r, self.backward_B, self.block)
        else:
            a_BHPJ = score_distances_at(
                q_position_BPHK, self.r, self.backward_B, view.slots_BP, view.L
            )
        e_BHP = self.answer_segments(q_BPHK)
        return a_BHPJ + jnp.where(view.is_other_segment, e_BHP[..., None], 0)

    def answer_segments(self, q_BPHK):
        """Scores queries with a key of another segment than theirs: [B, H, P]."""
        q_segment_BPHK = (q_BPHK + self.segment_HK) * q_BPHK.shape[-1] ** -0.5
        return jnp.einsum("BPHK,HK->BHP", q_segment_BPHK, self.other_HK)


def reference(q_BPHK, r, backward_B, slots_BP, L: int):
    """Computes `score_distances_at` by a gather, with the gradient of autodiff."""
    r = choose_rows(r, backward_B)
    raw_BHPR = jnp.einsum(f"BPHK,{'BRHK' if r.ndim == 4 else 'RHK'}->BHPR", q_BPHK, r)
    return relative_shift.reference(raw_BHPR, L - 1 - slots_BP, raw_BHPR.shape[-1] - L)


def score_distances(q_BLHK, r, backward_B=None, block: int = 128):
    """Scores every query with its distance to each of the J = R - L keys: [B, H, L, J].

    Args:
        q_BLHK: queries, whose positions are those of the last L keys.
        r, backward_B: see `RelativeTerms`.
        block: rows taken together, if that divides L.
    """
    B, L, H, K = q_BLHK.shape
    axis = r.ndim - 3
    J, b = r.shape[axis] - L, block if L % block == 0 else L
    # Row i needs the J distances from L - 1 - i on, so all rows together need scores with all R.
    # Taken in blocks, b rows need only J + b of them, those of the first block from L - b on.
    windows = [jax.lax.slice_in_dim(r, s, s + J + b, axis=axis) for s in range(L - b, -1, -b)]
    q_BcbHK = q_BLHK.reshape(B, L // b, b, H, K)
    raw_BHcbW = _multiply(q_BcbHK, jnp.stack(windows, axis), backward_B)
    return skew_rows(raw_BHcbW).reshape(B, H, L, J)


def score_distances_at(q_BPHK, r, backward_B, slots_BP, L: int):
    """Computes the rows of `score_distances` at positions of a sequence of L: [B, H, P, J]."""
    # Few slots meet all R distances: blocks would need their rows in order.  A GPU's tensor cores
    # take rows by the eight; what fills them up here is not copied later.
    P = q_BPHK.shape[1]
    fill = -P % choose_form(MULTIPLES)
    q_BPHK = jnp.pad(q_BPHK, ((0, 0), (0, fill), (0, 0), (0, 0)))
    starts_BP = jnp.pad(L - 1 - slots_BP, ((0, 0), (0, fill)))
    raw_BHPR = choose_form(FORMS)(q_BPHK, r, backward_B)
    return cut_rows(raw_BHPR, starts_BP, raw_BHPR.shape[-1] - L)[:, :, :P]


def _multiply(q_BcNHK, r, backward_B):
    # In turns, rows of several devices would be exchanged.
    is_divided = num_shards("B") > 1
    form = distance_products.reference if is_divided else choose_form(distance_products.FORMS)
    return form(q_BcNHK, r, backward_B)


def _score_each(q_BPHK, r, backward_B):
    """Scores queries with all distances of their row's direction: [B, H, P, R]."""
    axis = r.ndim - 3
    raw_BH1PR = _multiply(q_BPHK[:, None], jnp.expand_dims(r, axis), backward_B)
    return raw_BH1PR[:, :, 0]


def _score_all(q_BPHK, r, backward_B):
    """Computes `_score_each` without a copy of the distances for each row."""
    if r.ndim == 4 and backward_B is None:
        return jnp.einsum("BPHK,BRHK->BHPR", q_BPHK, r)
    q_BPHK, r_RHK = _widen_queries(q_BPHK, r, backward_B)
    # For each head one product of all rows, as its gradients are.
    B, P, H, K = q_BPHK.shape
    q_HNK = q_BPHK.transpose(2, 0, 1, 3).reshape(H, B * P, K)
    raw_HNR = jnp.einsum("HNK,RHK->HNR", q_HNK, r_RHK)
    return raw_HNR.reshape(H, B, P, -1).swapaxes(0, 1)


def _widen_queries(q_BPHK, r, backward_B):
    """Returns queries and distances, [R, H, K], whose products are those with each row's direction.

    Both directions stand beside each other, and queries have zeros for the one that is not theirs:
    products of twice the width take less time than a copy of the distances for each row.
    """
    if backward_B is None:
        return q_BPHK, r
    is_backward = backward_B[:, None, None, None]
    directions = [jnp.where(is_backward == n, q_BPHK, 0) for n in range(2)]
    return jnp.concatenate(directions, -1), jnp.concatenate([r[0], r[1]], -1)


MULTIPLES = {"gpu": 8, "default": 1}
FORMS = {"cpu": _score_each, "default": _score_all}
