"""A loss that compares a batch's rows has the gradient of the whole batch, however it is read."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn

from modules.metrics import Sum
from pretrain.training import train_state
from pretrain.training.gradient_cache import choose_sum
from tests.support.compiler import quick_jit

B, D = 8, 5


class Comparer(nn.Module):
    """Compares every row with every other; `noise` is drawn for each entry."""

    noise: float = 0.0
    compares_rows = True

    def setup(self):
        self.w_DD = self.param("w_DD", nn.initializers.normal(1.0), (D, D))
        self.scale_D = self.param("scale_D", nn.initializers.ones, (D,))

    def __call__(self, batch, *, train: bool):
        return self.compare_rows(self.encode_rows(batch, train=train), batch, train=train)

    def encode_rows(self, batch, *, train: bool):
        noise_BD = jax.random.normal(self.make_rng("dropout"), batch["x_BD"].shape)
        return {"z_BD": jnp.tanh((batch["x_BD"] + self.noise * noise_BD) @ self.w_DD)}

    def compare_rows(self, vectors, batch, *, train: bool):
        z_BD, weight_B = vectors["z_BD"], batch["weight_B"]
        loss_B = jnp.logaddexp(0, z_BD * self.scale_D @ z_BD.T).sum(1)
        return {"loss": Sum((loss_B * weight_B).sum(), weight_B.sum(), train=True)}


BATCH = {
    "x_BD": np.random.default_rng(0).normal(0, 1, (B, D)).astype("f"),
    "weight_B": np.arange(B).astype("f"),
}
KEY = jax.random.key(1)


def compute(objective, parts):
    state = train_state.init(objective, optax.sgd(1.0), jax.random.key(0), BATCH)
    run = functools.partial(choose_sum(objective, parts), objective, parts=parts)
    grads, carry, sums, statistics = quick_jit(run)(KEY, state, BATCH)
    assert (carry, statistics) == ({}, {})
    return state.params, grads, sums["loss"]


def assert_close(a, b):
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-5), a, b)


def test_parts_of_compared_rows_give_the_gradient_of_the_batch():
    (_, whole, loss), (_, dealt, dealt_loss) = (compute(Comparer(), parts) for parts in (1, 4))
    assert_close((dealt, dealt_loss), (whole, loss))


def test_what_is_drawn_in_the_first_pass_is_drawn_in_the_second():
    objective, parts = Comparer(noise=1.0), 4
    params, grads, loss = compute(objective, parts)
    keys = jax.random.split(jax.random.split(KEY)[0], parts)
    batches = train_state.split_rows(BATCH, parts)

    def total(params):  # all parts in one graph
        def encode(batch, rng):
            rngs = train_state.split_streams(rng)
            return objective.apply(
                {"params": params}, batch, rngs=rngs, train=True, method="encode_rows"
            )

        vectors = train_state.merge_rows(jax.vmap(encode)(batches, keys))
        method = functools.partial(objective.apply, train=True, method="compare_rows")
        return method({"params": params}, vectors, BATCH)["loss"].total

    value, expected = quick_jit(jax.value_and_grad(total))(params)
    assert_close((grads, loss.total), (expected, value))
