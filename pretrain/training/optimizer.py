"""Optimisers from a recipe's section; what decays or learns slower is said by the parameters.

An update takes the `norm` of the gradients and `infos`, a tree of
`modules.layers.params.ParamInfo`.  Stacked layers are one parameter with a leading dimension:
rules that speak of one layer act along it.
"""

import functools
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from modules.layers.params import ParamInfo
from pretrain.runtime.errors import UserError
from pretrain.training.schedules import Schedule, schedule


def path_name(path) -> str:
    """`backbone/layers/attention/wq_DHK`."""
    return jax.tree_util.keystr(path, simple=True, separator="/")


# --- rules -----------------------------------------------------------------------------------


def clip_to(limit: float, scale: float) -> optax.GradientTransformationExtraArgs:
    """Gradients times `scale`, then down to this global norm (0: any).

    The training step knows the norm already.
    """

    def update(updates, state, params=None, *, norm, **_):
        factor = jnp.minimum(scale, limit / jnp.maximum(norm, 1e-30)) if limit else scale
        return jax.tree.map(lambda g: g * factor, updates), state

    return optax.GradientTransformationExtraArgs(optax.init_empty_state, update)


class Moments(NamedTuple):
    """Adam's state; the leaves keep their parameters' names, and so their layout."""

    updates: jax.Array
    mu: Any
    nu: Any


def adam(b1: float, b2: float, eps: float, correct: bool, eps_inside: bool):
    """Adam's direction (Kingma & Ba 2015) in the variants the originals use.

    Args:
        correct: divide the moments by 1 - b^t.  BERT's and XLNet's AdamW do not.
        eps_inside: add eps to the corrected root (the paper's algorithm 1).  False adds it to
            the root before correction ("epsilon hat", as TensorFlow's Adam).
    """

    def init(params):
        zeros = jax.tree.map(jnp.zeros_like, params)
        return Moments(jnp.zeros((), jnp.int32), zeros, jax.tree.map(jnp.zeros_like, params))

    def update(grads, state, params=None):
        t = state.updates + 1
        mu = jax.tree.map(lambda m, g: b1 * m + (1 - b1) * g, state.mu, grads)
        nu = jax.tree.map(lambda v, g: b2 * v + (1 - b2) * g * g, state.nu, grads)
        first, second = (1 - b1**t, jnp.sqrt(1 - b2**t)) if correct else (1.0, 1.0)
        root = second if eps_inside else 1.0
        updates = jax.tree.map(
            lambda m, v: m / first * (second / root) / (jnp.sqrt(v) / root + eps), mu, nu
        )
        return updates, Moments(t, mu, nu)

    return optax.GradientTransformation(init, update)


def _rule(update: Callable[..., Any]) -> optax.GradientTransformationExtraArgs:
    """A transformation without state, `update(u, p, info)` for each parameter."""

    def update_all(updates, state, params=None, *, infos, **_):
        return jax.tree.map(update, updates, params, infos), state

    return optax.GradientTransformationExtraArgs(optax.init_empty_state, update_all)


def decay_weights(rate: float):
    """Adds this share of each parameter that decays, decoupled from the gradient.

    Loshchilov & Hutter 2019 (arXiv 1711.05101).
    """
    return _rule(lambda u, p, info: u + rate * p if info.decay else u)


def trust_ratio():
    """LAMB's scale (You et al. 2020): |parameter| / |update|, each layer of a stack its own.

    What does not decay is not scaled either, as in the paper's code.
    """

    def scale(u, p, info: ParamInfo):
        if not info.decay:
            return u
        axes = tuple(range(isinstance(info.layers_above, tuple), u.ndim))
        norm = lambda x: jnp.sqrt(jnp.sum(jnp.square(x), axes, keepdims=True))  # noqa: E731
        size, step = norm(p), norm(u)
        return u * jnp.where((size > 0) & (step > 0), size / jnp.maximum(step, 1e-30), 1.0)

    return _rule(scale)


def layers_above(info: ParamInfo, u: jax.Array) -> jax.Array:
    """Shapes `info.layers_above` so that it broadcasts against the parameter."""
    above = jnp.asarray(info.layers_above)
    return above.reshape(-1, *[1] * (u.ndim - 1)) if above.ndim else above


def layer_decay(factor: float):
    """Learning rates that fall by `factor` from each layer to the one beneath it.

    Applied to the update, where it counts (scaling gradients leaves Adam's steps as they were).
    The top layer and what lies above it keep the rate; embeddings lie beneath layer 0.
    """

    def scale(u, _, info: ParamInfo):
        return u * (factor ** jnp.maximum(layers_above(info, u), 0).astype(u.dtype))

    return _rule(scale)


class Steps(NamedTuple):
    """How many updates there have been."""

    updates: jax.Array


def gradual_unfreezing(every: int):
    """What lies above all layers learns from the start, the top layer after `every` steps, each
    next one as much later; embeddings come last (Howard & Ruder 2018, section 3.3).

    Their one step of unfreezing is an epoch.  Moments are kept of all gradients, and the norm that
    is clipped is that of all.
    """

    def update(updates, state, params=None, *, infos, **_):
        def gate(u, info: ParamInfo):
            return jnp.where(state.updates >= (layers_above(info, u) + 1) * every, u, 0)

        return jax.tree.map(gate, updates, infos), Steps(state.updates + 1)

    return optax.GradientTransformationExtraArgs(lambda _: Steps(jnp.zeros((), jnp.int32)), update)


def multiply(rates: Mapping[str, float]):
    """Updates of the parameters that match a pattern, times its factor; the first match counts."""

    def scale(path, u):
        found = (rate for pattern, rate in rates.items() if re.search(pattern, path_name(path)))
        return u * next(found, 1.0)

    return optax.stateless(lambda u, params: jax.tree_util.tree_map_with_path(scale, u))


def with_infos(tx: optax.GradientTransformation, infos) -> optax.GradientTransformationExtraArgs:
    """Binds the `infos` that every update of an optimiser is given, see `make`."""
    update = optax.with_extra_args_support(tx).update
    return optax.GradientTransformationExtraArgs(tx.init, functools.partial(update, infos=infos))


# --- the section -----------------------------------------------------------------------------


def make(
    *,
    name: str = "adamw",
    lr: float,
    steps: int,
    warmup: int = 0,
    decay: str = "linear",
    end: float = 0.0,
    join: str = "after",
    decay_steps: int = 0,
    cut: float = 0.1,
    ratio: float = 32.0,
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-6,
    correct: bool = True,
    eps_inside: bool = True,
    accumulator: float = 1.0,
    weight_decay: float = 0.0,
    clip: float = 0.0,
    scale: float = 1.0,
    freeze: str = "",
    rates: Mapping[str, float] | None = None,
    layers: float = 1.0,
    unfreeze: int = 0,
) -> tuple[optax.GradientTransformationExtraArgs, Schedule]:
    """The recipe's `optim` section: (transformation of mean gradients, learning rate by step).

    The transformation's update takes the global `norm` of the gradients and the parameters'
    `infos` as keywords.

    Args:
        name: "adamw", "lamb" or "adagrad" (`accumulator` is its first sum of squares).
        lr, steps, warmup, decay, end, join, decay_steps, cut, ratio: of `schedule`.
        b1, b2, eps, correct, eps_inside: of `adam`.
        weight_decay: share of the weights taken off per unit of learning rate, decoupled from
            the gradient; of the parameters made with `decay=True`.
        clip: limit of the norm of the global mean gradient; 0: none.
        scale: what the gradient is multiplied by first, where it matters (ELMo's Adagrad, whose
            loss is one per row of the batch instead of one per token).
        freeze: pattern of parameters that rest.
        rates: pattern -> factor of the update.
        layers: factor per layer downwards, see `layer_decay`.
        unfreeze: steps from one layer to the next, see `gradual_unfreezing`; 0: all at once.
    """
    rules = {
        "adamw": lambda: [adam(b1, b2, eps, correct, eps_inside)],
        "lamb": lambda: [adam(b1, b2, eps, correct, eps_inside)],
        "adagrad": lambda: [optax.scale_by_rss(accumulator, eps=0.0)],
    }
    if name not in rules:
        raise UserError(f"optim.name={name!r} is none of {', '.join(rules)}")
    rate = schedule(
        lr=lr,
        steps=steps,
        warmup=warmup,
        decay=decay,
        end=end,
        join=join,
        decay_steps=decay_steps,
        cut=cut,
        ratio=ratio,
    )
    chain = [clip_to(clip, scale)] if clip or scale != 1 else []
    chain += rules[name]()
    if weight_decay:
        chain.append(decay_weights(weight_decay))
    chain += [trust_ratio()] if name == "lamb" else []
    chain += [layer_decay(layers)] if layers != 1 else []
    chain += [multiply(rates)] if rates else []
    chain += [multiply({freeze: 0.0})] if freeze else []
    chain += [gradual_unfreezing(unfreeze)] if unfreeze else []
    return optax.chain(*chain, optax.scale_by_learning_rate(rate)), rate
