"""Optimisers from a recipe's section; what decays, rests or learns slower goes by name.

A parameter's name is its path, `backbone/layers/attention/wq_DHK`, and a pattern is a regular
expression searched in it.  Stacked layers are one parameter with a leading dimension: rules
that speak of one layer act along it.
"""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from pretrain.distributed.sharding import letters
from pretrain.runtime.errors import UserError
from pretrain.training.schedules import Schedule, schedule


def path_name(path) -> str:
    """`backbone/layers/attention/wq_DHK`."""
    return jax.tree_util.keystr(path, simple=True, separator="/")


def matching(params, pattern: str):
    """True at every parameter whose name matches; none for an empty pattern."""
    return jax.tree_util.tree_map_with_path(
        lambda path, _: bool(pattern and re.search(pattern, path_name(path))), params
    )


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


def trust_ratio(skip: str):
    """LAMB's scale (You et al. 2020): |parameter| / |update|, each layer of a stack its own."""

    def scale(path, u, p):
        if skip and re.search(skip, path_name(path)):
            return u
        axes = tuple(range(u.ndim - len(letters(path)), u.ndim))
        norm = lambda x: jnp.sqrt(jnp.sum(jnp.square(x), axes, keepdims=True))  # noqa: E731
        size, step = norm(p), norm(u)
        return u * jnp.where((size > 0) & (step > 0), size / jnp.maximum(step, 1e-30), 1.0)

    return optax.stateless(
        lambda updates, params: jax.tree_util.tree_map_with_path(scale, updates, params)
    )


STACK = r"layers/"
BELOW = r"(token|position|segment)_[A-Z]*D$|embedding_norm/|characters/"


def depths(params):
    """How many layers lie on top of each parameter, and -1 above all layers.

    An array along the layers for those of a stack of N: N - 1, ..., 0; embeddings, `BELOW`, lie
    at N.
    """
    flat = jax.tree_util.tree_leaves_with_path(params)
    N = max((len(x) for path, x in flat if re.search(STACK, path_name(path))), default=0)

    def depth(path, x):
        name = path_name(path)
        if re.search(STACK, name):
            return jnp.arange(N - 1, -1, -1).reshape(-1, *[1] * (x.ndim - 1))
        return jnp.array(N if re.search(BELOW, name) else -1)

    return jax.tree_util.tree_map_with_path(depth, params)


def layer_decay(factor: float):
    """Learning rates that fall by `factor` from each layer to the one beneath it.

    Applied to the update, where it counts (scaling gradients leaves Adam's steps as they were).
    The top layer and what lies above it keep the rate; embeddings lie beneath layer 0.
    """

    def scale(u, depth):
        return u * (factor ** jnp.maximum(depth, 0).astype(u.dtype))

    return optax.stateless(lambda updates, params: jax.tree.map(scale, updates, depths(updates)))


class Steps(NamedTuple):
    """How many updates there have been."""

    updates: jax.Array


def gradual_unfreezing(every: int):
    """What lies above all layers learns from the start, the top layer after `every` steps, each
    next one as much later; embeddings come last (Howard & Ruder 2018, section 3.3).

    Their one step of unfreezing is an epoch.  Moments are kept of all gradients, and the norm that
    is clipped is that of all.
    """

    def update(updates, state, params=None):
        def gate(u, depth):
            return jnp.where(state.updates >= (depth + 1) * every, u, 0)

        return jax.tree.map(gate, updates, depths(updates)), Steps(state.updates + 1)

    return optax.GradientTransformation(lambda _: Steps(jnp.zeros((), jnp.int32)), update)


def multiply(rates: Mapping[str, float]):
    """Updates of the parameters that match a pattern, times its factor; the first match counts."""

    def scale(path, u):
        found = (rate for pattern, rate in rates.items() if re.search(pattern, path_name(path)))
        return u * next(found, 1.0)

    return optax.stateless(lambda u, params: jax.tree_util.tree_map_with_path(scale, u))


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
    no_decay: str = r"norm|bias_|/b[ioqkv]?_",
    clip: float = 0.0,
    scale: float = 1.0,
    freeze: str = "",
    rates: Mapping[str, float] | None = None,
    layers: float = 1.0,
    unfreeze: int = 0,
) -> tuple[optax.GradientTransformationExtraArgs, Schedule]:
    """The recipe's `optim` section: (transformation of mean gradients, learning rate by step).

    The transformation's update takes the global `norm` of the gradients as a keyword.

    Args:
        name: "adamw", "lamb" or "adagrad" (`accumulator` is its first sum of squares).
        lr, steps, warmup, decay, end, join, decay_steps, cut, ratio: of `schedule`.
        b1, b2, eps, correct, eps_inside: of `adam`.
        weight_decay: share of the weights taken off per unit of learning rate, decoupled from
            the gradient; `no_decay` names the parameters it leaves alone.
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
        mask = lambda params: jax.tree.map(lambda x: not x, matching(params, no_decay))  # noqa: E731
        chain.append(optax.add_decayed_weights(weight_decay, mask))
    chain += [trust_ratio(no_decay)] if name == "lamb" else []
    chain += [layer_decay(layers)] if layers != 1 else []
    chain += [multiply(rates)] if rates else []
    chain += [multiply({freeze: 0.0})] if freeze else []
    chain += [gradual_unfreezing(unfreeze)] if unfreeze else []
    return optax.chain(*chain, optax.scale_by_learning_rate(rate)), rate
