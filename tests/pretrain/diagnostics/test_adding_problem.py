"""The adding problem: its rows, and training that is told by its seed."""

import jax
import numpy as np

from pretrain.diagnostics import adding_problem

# Numbers are uniform in [0, 1], as in Le et al. 2015 (arXiv 1504.00941): always guessing 1 has the
# variance of the sum of two of them as its mean squared error.
GUESS = 1 / 6


def test_the_sum_is_of_one_marked_number_in_each_half():
    batch = adding_problem.draw_batch(jax.random.key(0), 2000, 10)
    value_BL, mark_BL = np.moveaxis(np.asarray(batch["x_BLD"]), 2, 0)
    np.testing.assert_array_equal(mark_BL[:, :5].sum(1), 1)
    np.testing.assert_array_equal(mark_BL[:, 5:].sum(1), 1)
    np.testing.assert_allclose((value_BL * mark_BL).sum(1), batch["y_B"], rtol=1e-6)
    np.testing.assert_allclose(np.var(batch["y_B"]), GUESS, rtol=0.1)


def test_training_on_a_short_problem_learns_to_add():
    optim = dict(name="adamw", lr=1e-2, steps=300, decay="constant", clip=1.0)
    curves = adding_problem.train(
        dict(cell="gru"), optim, seed=0, T=4, U=16, B=32, radius=1.0, every=150
    )
    assert curves["loss"].shape == curves["grad_norm"].shape == (300,)
    assert curves["test_loss"] < GUESS / 10
