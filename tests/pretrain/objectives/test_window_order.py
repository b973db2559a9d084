"""Either part of a window has its own targets, and the first never sees the second."""

import jax
import numpy as np

from pretrain.objectives.window_order import WindowOrder

FIELDS = dict(
    predict_every=2, perm_size=0, spans=False, max_gram=5, alpha=6, beta=1, faithful=False
)


def test_targets_are_halved_and_the_first_part_sees_nothing_of_the_second():
    order, nothing_L = WindowOrder(6, **FIELDS), np.zeros(12, bool)
    for seed in range(5):
        drawn = order.draw(jax.random.key(seed), nothing_L, ~nothing_L, False)
        targets_L, rank_L, sees_below_L = map(np.asarray, drawn)
        assert (targets_L[:6].sum(), targets_L[6:].sum()) == (3, 3)
        assert sees_below_L[:6].max() <= rank_L[6:].min()
