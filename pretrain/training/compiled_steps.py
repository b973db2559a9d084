"""The compiled functions of a run: fresh state, training step, evaluation step."""

import functools
import itertools
from collections.abc import Mapping, Sequence

import jax
import numpy as np
from jax.experimental import multihost_utils

from modules import metrics
from modules.activation_sharding import sharding_context
from modules.layers.params import recording
from pretrain.data.batches.loader import stream
from pretrain.distributed.sharding import Layout
from pretrain.training import optimizer
from pretrain.training import train_state as state_lib


class Steps:
    """An objective and an optimiser on a machine; every function runs under its layout.

    Attributes:
        like: the state as jax.ShapeDtypeStructs with their shardings.
        init: () -> state.
        train: (state, batch) -> (state, StepMetrics); the state given is used up.
    """

    def __init__(
        self,
        objective,
        tx,
        layout: Layout,
        train: Sequence,
        *,
        seed: int,
        parts: int = 1,
        average: float = 0.0,
        scalars: Mapping[str, float] | None = None,
    ):
        """
        Args:
            train: the layouts of `pretrain.data` whose batches the steps will take.
            seed: of the parameters and of all randomness.
            parts, average: see `train_state.train_step`.
            scalars: initial values of the state's scalars, see `train_state.SCALARS`.

        Raises:
            ValueError: there is no such scalar.
        """
        if unknown := (scalars or {}).keys() - state_lib.SCALARS.keys():
            raise ValueError(f"scalar {min(unknown)!r} is none of {', '.join(state_lib.SCALARS)}")
        self.objective, self.layout = objective, layout
        for data in train:
            layout.check_rows(data.B, parts)
        init_rng, train_rng, self.eval_rng = jax.random.split(jax.random.key(seed), 3)
        batch = self.blank(train[0])

        def init():
            return state_lib.init(
                objective, tx, init_rng, batch(), average=average, scalars=scalars
            )

        with recording() as record:
            shapes = self._placed(jax.eval_shape)(init)
        tx = optimizer.with_infos(tx, record.infos(shapes.params))
        places = layout.of(shapes)
        self.like = layout.like(shapes)
        self.init = self._placed(jax.jit(init, out_shardings=places))
        train_step = jax.jit(
            functools.partial(
                state_lib.train_step, objective, tx, train_rng, parts=parts, average=average
            ),
            donate_argnums=0,
            out_shardings=(places, None),
        )
        self.train, self._lower = self._placed(train_step), self._placed(train_step.lower)
        for data in train[1:]:  # a later phase is refused now, if at all
            self._placed(jax.eval_shape)(self.train, self.like, jax.eval_shape(self.blank(data)))
        self._evaluate = self._placed(jax.jit(functools.partial(state_lib.eval_step, objective)))
        self._predict = self._placed(
            jax.jit(
                lambda params, batch: objective.apply({"params": params}, batch, method="predict")
            )
        )
        self._fresh_carry = functools.cache(self._compile_carry)

    def _placed(self, f):
        """`f`, tracing what it traces under this machine's layout."""

        def run(*args):
            with sharding_context(self.layout):
                return f(*args)

        return run

    def blank(self, data):
        """A function that makes a batch of zeros shaped like those of `data`."""
        shapes = data.shapes()
        return lambda: {name: jax.numpy.zeros(x.shape, x.dtype) for name, x in shapes.items()}

    def lowered(self, data) -> jax.stages.Lowered:
        """The training step on batches of `data`, from shapes alone: `.compile()` finishes it."""
        return self._lower(self.like, self.layout.like(jax.eval_shape(self.blank(data))))

    def rows(self, data) -> slice:
        """Which rows of its batches this process reads."""
        return self.layout.rows(data.B)

    def evaluate(self, params, data, stop, batches: int | None = None) -> metrics.Metrics | None:
        """The sums of `data` from its beginning, memory carried from one batch to the next.

        Reads it to its end, or so many batches; None if `stop()` asked to break off.  Added up in
        float64: a float32 no longer counts beyond 2^24 tokens.
        """
        total: metrics.Metrics = {}
        carry = self._fresh_carry(data)()
        for step, batch in itertools.islice(stream(data, 0, self.rows(data)), batches):
            rng = jax.random.fold_in(self.eval_rng, step)
            sums, carry = self._evaluate(rng, params, carry, self.layout.put(batch, data.B))
            if stop():
                return None
            total = metrics.add(total, jax.tree.map(np.float64, jax.device_get(sums)))
        return total

    def predict(self, params, data, stop) -> dict[str, np.ndarray] | None:
        """What the objective's `predict` says of every row of `data`, in its order, fillers left
        out; None if `stop()` asked to break off."""
        found: list[dict[str, np.ndarray]] = []
        for _, batch in stream(data, 0, self.rows(data)):
            placed = self.layout.put(batch, data.B)
            outputs = {**self._predict(params, placed), "weight_B": placed["weight_B"]}
            found.append(multihost_utils.process_allgather(outputs, tiled=True))
            if stop():
                return None
        whole = {name: np.concatenate([each[name] for each in found]) for name in found[0]}
        real = whole.pop("weight_B") > 0
        return {name: x[real] for name, x in whole.items()}

    def _compile_carry(self, data):
        """A function that makes the carry an evaluation on `data` begins with."""
        blank = self.blank(data)

        def fresh():
            return state_lib.fresh_carry(self.objective, self.eval_rng, blank())

        places = self.layout.of(self._placed(jax.eval_shape)(fresh))
        return self._placed(jax.jit(fresh, out_shardings=places))
