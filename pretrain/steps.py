"""The compiled functions of a run: fresh state, training step, evaluation step."""

import functools

import jax

from modules.placement import placing
from pretrain import state as state_lib
from pretrain.errors import UserError
from pretrain.sharding import Layout


class Steps:
    """An objective and an optimiser on a machine; every function runs under its layout.

    Attributes:
        like: the state as jax.ShapeDtypeStructs with their shardings.
        init: () -> state.
        train: (state, batch) -> (state, sums); the state given is used up.
    """

    def __init__(
        self, objective, tx, layout: Layout, train, *, seed: int, parts: int = 1,
        average: float = 0.0,
    ):  # fmt: skip
        """`train` is the layout of `pretrain.data` whose batches the steps will take."""
        self.objective, self.layout = objective, layout
        if train.B % (parts * layout.shards("B")):
            shards = layout.shards("B")
            raise UserError(
                f"a batch of {train.B} rows does not divide over {shards} devices"
                + (f" in {parts} parts" if parts > 1 else "")
            )
        init_rng, train_rng, self.eval_rng = jax.random.split(jax.random.key(seed), 3)
        batch = self.blank(train)

        def init():
            return state_lib.init(objective, tx, init_rng, batch(), average=average)

        shapes = self._placed(jax.eval_shape)(init)
        places = layout.of(shapes)
        self.like = jax.tree.map(
            lambda x, place: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=place), shapes, places
        )
        self.init = self._placed(jax.jit(init, out_shardings=places))
        self.train = self._placed(
            jax.jit(
                functools.partial(
                    state_lib.train_step, objective, tx, train_rng, parts=parts, average=average
                ),
                donate_argnums=0,
                out_shardings=(places, None),
            )
        )
        self._evaluate = self._placed(jax.jit(functools.partial(state_lib.eval_step, objective)))
        self._fresh_carry = functools.cache(self._compile_carry)

    def _placed(self, f):
        """`f`, tracing what it traces under this machine's layout."""

        def run(*args):
            with placing(self.layout):
                return f(*args)

        return run

    def blank(self, data):
        """A function that makes a batch of zeros shaped like those of `data`."""
        row = data.batch(0, slice(0, 1))
        return lambda: {
            name: jax.numpy.zeros((data.B, *x.shape[1:]), x.dtype) for name, x in row.items()
        }

    def rows(self, data) -> slice:
        """Which rows of its batches this process reads."""
        return self.layout.rows(data.B)

    def evaluate(self, params, data, batches):
        """Yields the sums of each of these batches in turn, memory carried from one to the next."""
        carry = self._fresh_carry(data)()
        for step, batch in batches:
            rng = jax.random.fold_in(self.eval_rng, step)
            sums, carry = self._evaluate(rng, params, carry, self.layout.put(batch, data.B))
            yield sums

    def _compile_carry(self, data):
        """A function that makes the carry an evaluation on `data` begins with."""
        blank = self.blank(data)

        def fresh():
            return state_lib.fresh_carry(self.objective, self.eval_rng, blank())

        places = self.layout.of(self._placed(jax.eval_shape)(fresh))
        return self._placed(jax.jit(fresh, out_shardings=places))
