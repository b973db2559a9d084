"""A query meets the distance to its key, whatever the shift is made of."""

import numpy as np
import pytest

from modules.layers import relative_attention

B, H, K, M = 2, 3, 4, 5


def draw(L, seed=0, by_example=False):
    rng = np.random.default_rng(seed)
    rows = (B, M + 2 * L) if by_example else (M + 2 * L,)
    q_BLHK = rng.normal(0, 1, (B, L, H, K)).astype(np.float32)
    return q_BLHK, rng.normal(0, 1, (*rows, H, K)).astype(np.float32)


def pair_by_pair(q_BLHK, r):
    """Row 0 of the table is distance M + L - 1; each further row is one less."""
    L = q_BLHK.shape[1]
    r_BRHK = np.broadcast_to(r, (B, *r.shape[-3:]))
    scores = np.zeros((B, H, L, M + L))
    for b, h, i, j in np.ndindex(*scores.shape):
        distance = (M + i) - j
        scores[b, h, i, j] = q_BLHK[b, i, h] @ r_BRHK[b, (M + L - 1) - distance, h]
    return scores


@pytest.mark.parametrize("by_example", [False, True])
@pytest.mark.parametrize(("L", "block"), [(6, 128), (6, 3), (6, 2), (6, 1), (7, 3), (1, 1)])
def test_every_pair_meets_its_distance_in_blocks_of_any_size(L, block, by_example):
    q_BLHK, r = draw(L, by_example=by_example)
    found = relative_attention.score_distances(q_BLHK, r, block)
    np.testing.assert_allclose(found, pair_by_pair(q_BLHK, r), atol=1e-5)


@pytest.mark.parametrize("by_example", [False, True])
def test_slots_are_rows_of_the_whole_in_any_order_and_repeated(by_example):
    q_BLHK, r = draw(6, by_example=by_example)
    slots_BP = np.array([[5, 0, 3, 3], [2, 5, 1, 0]])
    q_BPHK = np.take_along_axis(q_BLHK, slots_BP[..., None, None], axis=1)
    rows = np.take_along_axis(pair_by_pair(q_BLHK, r), slots_BP[:, None, :, None], axis=2)
    np.testing.assert_allclose(
        relative_attention.score_distances_at(q_BPHK, r, slots_BP, 6), rows, atol=1e-5
    )


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("clamp_len", [-1, 3])
def test_the_table_holds_the_sinusoid_of_every_distance(clamp_len, backward):
    L, D = 4, 6
    table_RD = relative_attention.compute_sinusoids(
        L, M, D, clamp_len=clamp_len, is_backward=backward
    )
    assert table_RD.shape == (M + 2 * L, D)
    for row, distance in enumerate(range(M + L - 1, -L - 1, -1)):
        distance = -distance if backward else distance
        distance = max(-clamp_len, min(clamp_len, distance)) if clamp_len > 0 else distance
        angles = [distance / 10000 ** (2 * i / D) for i in range(D // 2)]
        np.testing.assert_allclose(table_RD[row], [*np.sin(angles), *np.cos(angles)], atol=2e-6)
