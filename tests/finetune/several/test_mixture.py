"""A mixture gives every task its share, and a step's batch follows from the step alone."""

import collections

import numpy as np
import pytest

from finetune.inputs.batches import Examples
from finetune.several.mixture import KINDS, Mixture
from pretrain.data.batches import split_tasks
from pretrain.runtime.errors import UserError

SIZES = {"big": 80, "mid": 20, "small": 5}
SHARES = {
    "proportional": [20 / 27, 5 / 27, 2 / 27],
    "annealed": np.sqrt([20, 5, 2]) / np.sqrt([20, 5, 2]).sum(),
    "uniform": [1 / 3] * 3,
    "round_robin": [1 / 3] * 3,
    "all": [1, 1, 1],
}


def mixture(kind, seed=0, power=0.5) -> Mixture:
    layouts = {
        name: Examples({"x_B": np.arange(n)}, B=4, L=1, seed=1, shuffle=True, task=name)
        for name, n in SIZES.items()
    }
    return Mixture(layouts, seed=seed, kind=kind, power=power)


@pytest.mark.parametrize("kind", KINDS)
def test_tasks_have_their_shares_and_read_their_own_batches_in_turn(kind):
    data, steps, seen = mixture(kind), 270, collections.Counter()
    for step in range(steps):
        for name, arrays in split_tasks(data.batch(step)).items():
            own = split_tasks(data.layouts[name].batch(seen[name]))[name]
            np.testing.assert_array_equal(arrays["x_B"], own["x_B"])
            seen[name] += 1
    shares = [seen[name] / steps for name in SIZES]
    assert shares == pytest.approx(SHARES[kind], abs=0.02)


def test_the_order_is_a_function_of_seed_and_step():
    orders = [[mixture("uniform", seed).locate(s) for s in range(99)] for seed in (3, 3, 4)]
    assert orders[0] == orders[1] != orders[2]
    turns = [next(iter(mixture("round_robin").locate(s))) for s in range(6)]
    assert turns == [*SIZES, *SIZES]


def test_processes_read_their_rows_of_one_batch():
    data = mixture("all")
    whole, part = data.batch(7), data.batch(7, slice(2, 4))
    assert whole.keys() == part.keys() == data.shapes().keys()
    for name, x in part.items():
        np.testing.assert_array_equal(x, whole[name][2:4])


def test_an_unknown_kind_says_what_there_is():
    with pytest.raises(UserError, match=r"mixture\.kind='random' is none of uniform, prop"):
        mixture("random")
