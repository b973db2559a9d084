"""How far back a trained run's predictions depend on what it reads, by their gradients."""

import functools
import itertools
import pathlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn

from pretrain import objectives
from pretrain.data import batches, prepare
from pretrain.data.batches.loader import read_batches
from pretrain.diagnostics.gradient_decay import Decay
from pretrain.distributed.sharding import Layout, make_mesh
from pretrain.inference import trained_run
from pretrain.runtime.errors import UserError
from pretrain.runtime.sections import call_section, name_section
from pretrain.training import train_state
from pretrain.training.compiled_steps import Steps

EMBED = ("embed", "_embed")  # methods in which backbones embed tokens


def measure_run(workdir: pathlib.Path, *, T: int, num_batches: int) -> Decay:
    """Measures a run's gradients on its held-out text.

    Of every row the last prediction counts: of a causal LM that of the last token, of BERT and
    XLNet that of the last predicted one, of ELMo's forward direction.  Distances are those of the
    embedded inputs before it, of those that the prediction can see.  Memory is empty.

    Args:
        T: the largest distance; a row may be shorter.
        num_batches: how many batches are read.

    Raises:
        UserError: there is no run with a corpus and held-out text, or it has no such gradients.
    """
    run = trained_run.opened(workdir)
    if "objective" not in run.config or not run.config.get("evals"):
        raise UserError(f"{workdir} holds a run without an objective or held-out text of its own")
    if not any(hasattr(run.backbone, name) for name in EMBED):
        raise UserError(f"model.name={run.config.model.name!r} has no method 'embed' to look into")
    corpus = call_section("corpus", prepare.prepare, run.config.corpus)
    parts = dict(backbone=run.backbone, head=run.config.get("head"))
    parts |= dict(special=run.tokenizer.special, execution=run.config.get("execution"))
    objective = call_section("objective", objectives.build, run.config.objective, **parts)
    changes = next(iter(run.config.evals.values()))
    with name_section("evals"):
        text = batches.build(corpus=corpus, **{**run.config.batches, **changes})
    layout = Layout(make_mesh(data=1, fsdp=-1))
    steps = Steps(objective, optax.identity(), layout, [text], seed=run.config.seed)
    params, _ = run.weights(steps.like.params)
    carry = train_state.init_carry(objective, steps.eval_rng, steps.blank(text)())
    measure = jax.jit(functools.partial(input_gradients, objective, params, carry, T=T))
    sum_T, count_T = np.zeros(T), np.zeros(T)
    for step, batch in itertools.islice(read_batches(text, 0, steps.rows(text)), num_batches):
        rng = jax.random.fold_in(steps.eval_rng, step)
        new_T, rows_T = jax.device_get(measure(rng, layout.put(batch, text.B)))
        sum_T, count_T = sum_T + new_T, count_T + rows_T
    if not count_T.any():
        raise UserError(f"{workdir}: none of {num_batches} batches predicts a token")
    return Decay((sum_T / np.maximum(count_T, 1))[count_T > 0])


def input_gradients(objective, params, carry, rng, batch, *, T: int) -> tuple[Any, Any]:
    """Sums the norms of the last predictions' gradients over rows: (sums [T], rows [T])."""
    seen: dict[str, Any] = {}

    def last_losses(delta, seen):
        """Returns the loss of each row's last prediction, of inputs moved by `delta`."""

        def intercept(call, args, kwargs, context):
            if context.module.path != ("backbone",):
                return call(*args, **kwargs)
            if context.method_name == "__call__":
                seen["slots_BP"] = kwargs.get("slots_BP")
            if context.method_name not in EMBED:
                return call(*args, **kwargs)
            x = call(*args, **kwargs)
            seen["shape"] = x.shape
            return x if delta is None else x + delta.astype(x.dtype)

        rngs = dict(zip(("dropout", "corrupt"), jax.random.split(rng), strict=True))
        with nn.intercept_methods(intercept):
            (nats_BP, weights_BP), _ = objective.apply(
                {"params": params, **carry}, batch, method="nats", mutable=list(carry), rngs=rngs
            )
        slots_BP = seen["slots_BP"]
        # ELMo's directions lie one after the other, the forward one first.
        P = seen["shape"][-2] if slots_BP is None else nats_BP.shape[1]
        is_real_BP = weights_BP[:, :P] > 0
        last_B = jnp.max(jnp.where(is_real_BP, jnp.arange(P), -1), axis=1)
        loss_B = -jnp.take_along_axis(nats_BP[:, :P], jnp.maximum(last_B, 0)[:, None], 1)[:, 0]
        position_B = last_B
        if slots_BP is not None:  # BERT reads <cls> in a slot before those it predicts
            own_BP = slots_BP[:, -P:]
            position_B = jnp.take_along_axis(own_BP, jnp.maximum(last_B, 0)[:, None], 1)[:, 0]
        is_row_B = last_B >= 0
        return jnp.sum(loss_B * is_row_B), jnp.where(is_row_B, position_B, -1)

    jax.eval_shape(lambda: last_losses(None, seen))
    delta = jnp.zeros(seen["shape"], jnp.float32)
    dx, position_B = jax.grad(last_losses, has_aux=True)(delta, {})
    norm_BL = jnp.linalg.norm(dx if dx.ndim == 3 else dx[:, 0], axis=-1)
    distance_BL = position_B[:, None] - jnp.arange(norm_BL.shape[1])
    one_hot_BLT = distance_BL[..., None] == jnp.arange(1, T + 1)
    # Padding and other documents: a mean over them would say how long documents are.
    one_hot_BLT &= (norm_BL > 0)[..., None]
    return jnp.einsum("BL,BLT->T", norm_BL, one_hot_BLT), one_hot_BLT.sum((0, 1))
