"""Compiles the functions of a run: its first state, training step, evaluation step."""

import contextlib
import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

from modules import metrics
from modules.activation_sharding import sharding_context
from modules.kernels import attention
from modules.layers.params import recording
from pretrain.data.batches import split_tasks
from pretrain.data.batches.loader import read_batches
from pretrain.distributed.sharding import Layout
from pretrain.runtime.progress import say
from pretrain.runtime.sections import name_section
from pretrain.training import optimizer, row_updates, task_updates
from pretrain.training import train_state as state_lib
from pretrain.training.gradient_cache import choose_sum

_say_once = functools.cache(say)  # of many layers that are traced, all alike


class Steps:
    """Compiles an objective and an optimiser for a machine, under its layout.

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
        norms: Callable[[Any], Callable] | None = None,
        scalars: Mapping[str, float] | None = None,
    ):
        """
        Args:
            train: the layouts of `pretrain.data` whose batches the steps will take.
            seed: of the parameters and of all randomness.
            parts, average: see `train_state.train_step`.
            norms: the parameters' infos -> what measures an update; None: nothing does.
            scalars: initial values of the state's scalars, see `train_state.SCALARS`.

        Raises:
            ValueError: there is no such scalar.
            UserError: a kernel is asked for that cannot be used, the rows do not divide over
                devices and parts, or the loss compares all rows of a batch and cannot have them in
                parts.
        """
        if unknown := (scalars or {}).keys() - state_lib.SCALARS.keys():
            raise ValueError(f"scalar {min(unknown)!r} is none of {', '.join(state_lib.SCALARS)}")
        sum_parts = choose_sum(objective, parts)
        self.objective, self.layout = objective, layout
        for data in train:
            layout.check_rows(data.B, parts)
        # Apart: an evaluation more or less leaves the steps after it as they were.
        init_rng, train_rng, self.eval_rng = jax.random.split(jax.random.key(seed), 3)
        make_batch = make_blank(train[0])
        tx = task_updates.by_task(tx, sorted(filter(None, split_tasks(train[0].shapes()))))

        def init():
            return state_lib.init(
                objective, tx, init_rng, make_batch(), average=average, scalars=scalars
            )

        with recording() as record:
            shapes = self._bind_layout(jax.eval_shape)(init)
        # Parameters say what decays and how deep they lie while their shapes are traced.
        infos = record.infos(shapes.params)
        is_entrywise = isinstance(tx, row_updates.EntrywiseTransformation)
        tx = optimizer.with_infos(tx, infos)
        if is_entrywise and shapes.average is None and layout.num_shards("V") == 1:
            sum_parts = functools.partial(sum_parts, tables=row_updates.list_tables(infos))
        options: dict[str, Any] = dict(parts=parts, average=average, sum_parts=sum_parts)
        options |= {"measure": norms(infos)} if norms else {}
        shardings = layout.make_shardings(shapes)
        self.like = layout.add_shardings(shapes)
        # Made in their shards: the whole state need not fit on one device.
        self.init = self._bind_layout(jax.jit(init, out_shardings=shardings))
        train_step = jax.jit(
            functools.partial(state_lib.train_step, objective, tx, train_rng, **options),
            donate_argnums=0,  # the old state's memory becomes the new one's
            out_shardings=(shardings, None),
        )
        of_training = functools.partial(attention.training_step, _say_once)
        self.train = self._bind_layout(train_step, of_training)
        self._lower = self._bind_layout(train_step.lower, of_training)
        # A later phase that does not fit is refused now, not days later; a kernel that cannot be
        # used, before a state is made.
        for data in train if _demands_kernel(objective) else train[1:]:
            with name_section("execution"):
                self._bind_layout(jax.eval_shape)(
                    self.train, self.like, jax.eval_shape(make_blank(data))
                )
        eval_step = functools.partial(state_lib.eval_step, objective)
        self._evaluate = self._bind_layout(jax.jit(eval_step))
        self._predict = self._bind_layout(
            jax.jit(
                lambda params, batch: objective.apply({"params": params}, batch, method="predict")
            )
        )
        self._init_carry = functools.cache(self._compile_carry)

    def _bind_layout(self, f, within: Callable[[], Any] = contextlib.nullcontext):
        def run(*args):
            # Around each call: a function is traced at its first, wherever that is.
            with sharding_context(self.layout), within():
                return f(*args)

        return run

    def lower(self, data) -> jax.stages.Lowered:
        """Lowers the training step on batches of `data`, from shapes alone."""
        return self._lower(self.like, self.layout.add_shardings(jax.eval_shape(make_blank(data))))

    def evaluate(self, params, data, stop, batches: int | None = None) -> metrics.Metrics | None:
        """Adds up the metrics of `data` from its beginning, with memory between its batches.

        Args:
            stop: () -> whether to break off.
            batches: how many are read; None: all.

        Returns:
            Sums in float64; None if `stop()` asked to break off.
        """
        total: metrics.Metrics = {}
        # Anew for each evaluation: what is held out is read from its beginning.
        carry = self._init_carry(data)()
        for step, batch in itertools.islice(
            read_batches(data, 0, self.layout.find_rows(data.B)), batches
        ):
            # By the batch alone: every evaluation corrupts the same tokens, so that losses compare.
            rng = jax.random.fold_in(self.eval_rng, step)
            sums, carry = self._evaluate(rng, params, carry, self.layout.shard_batch(batch, data.B))
            if stop():
                return None
            # In float64: a float32 no longer counts beyond 2^24 tokens.
            total = metrics.add(total, jax.tree.map(np.float64, jax.device_get(sums)))
        return total

    def predict(self, params, data, stop) -> dict[str, np.ndarray] | None:
        """Returns predictions for the rows of `data`, of one task, in order; None if `stop()`."""
        blocks: list[dict[str, np.ndarray]] = []
        for _, batch in read_batches(data, 0, self.layout.find_rows(data.B)):
            arrays = self.layout.shard_batch(batch, data.B)
            (weights,) = split_tasks(arrays).values()
            outputs = {**self._predict(params, arrays), "weight_B": weights["weight_B"]}
            # Gathered, since each process holds its own rows only.
            blocks.append(multihost_utils.process_allgather(outputs, tiled=True))
            if stop():
                return None
        whole = {name: np.concatenate([block[name] for block in blocks]) for name in blocks[0]}
        is_row_B = whole.pop("weight_B") > 0  # those that fill up the last batch weigh 0
        return {name: x[is_row_B] for name, x in whole.items()}

    def _compile_carry(self, data):
        make_batch = make_blank(data)

        def init_carry():
            return state_lib.init_carry(self.objective, self.eval_rng, make_batch())

        shardings = self.layout.make_shardings(self._bind_layout(jax.eval_shape)(init_carry))
        return self._bind_layout(jax.jit(init_carry, out_shardings=shardings))


def _demands_kernel(objective) -> bool:
    backbone = getattr(objective, "backbone", None)
    return getattr(backbone, "attention_form", "auto") == "kernel"


def make_blank(data):
    """Returns a function that makes a batch of zeros, shaped as those of `data`."""
    shapes = data.shapes()
    return lambda: {name: jax.numpy.zeros(x.shape, x.dtype) for name, x in shapes.items()}
