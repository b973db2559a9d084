"""Modules ask the layout around them for shards, and run without one."""

import jax.numpy as jnp
import numpy as np

from modules import activation_sharding as sharding


class Halves:
    """Splits every dimension over two devices, and marks what it constrains."""

    device = "a half"

    def constrain(self, x, letters):
        return x + len(letters)

    def num_shards(self, letter):
        return 2

    def reduce_to_shards(self, shares_B, letters):
        return shares_B.sum(0) + len(letters)

    def map_shards(self, f, arrays, letters, results):
        return f(*(x + len(word) for x, word in zip(arrays, letters, strict=True)))


def ask_all():
    x_BD = jnp.ones((2, 3))
    return (
        sharding.constrain_sharding(x_BD, "BD"),
        sharding.reduce_to_shards(x_BD, "D"),
        sharding.map_shards(lambda x_BD: x_BD, [x_BD], ["BD"], ["BD"]),
        sharding.num_shards("B"),
        sharding.find_device() == Halves.device,
    )


def test_the_layout_is_asked_inside_its_context_alone():
    plain = (np.ones((2, 3)), np.full(3, 2), np.ones((2, 3)), 1, False)
    with sharding.sharding_context(Halves()):
        inside = ask_all()
    for results, expected in (
        (inside, (plain[0] + 2, plain[1] + 1, plain[2] + 2, 2, True)),
        (ask_all(), plain),
    ):
        for result, value in zip(results, expected, strict=True):
            np.testing.assert_array_equal(result, value)
