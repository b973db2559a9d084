"""Optimisers from a recipe's section; what decays or learns slower is said by the parameters.

An update takes the `norm` of the gradients, the `weight` of the batch's loss, the tasks `present`
in the batch and `infos`, a tree of `modules.layers.params.ParamInfo`.  Stacked layers are one
parameter with a leading dimension: rules that speak of one layer act along it.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from modules import plugins
from modules.layers.params import ParamInfo
from pretrain.runtime.errors import UserError
from pretrain.training import layer_rules
from pretrain.training.row_updates import EntrywiseTransformation
from pretrain.training.schedules import Schedule


def path_name(path) -> str:
    """Returns a path as text, `backbone/layers/attention/wq_DHK`."""
    return jax.tree_util.keystr(path, simple=True, separator="/")


# --- rules -----------------------------------------------------------------------------------


def clip_to(limit: float, scale: float) -> optax.GradientTransformationExtraArgs:
    """Scales gradients by `scale`, then down to this global norm (0: any)."""

    def update(updates, state, params=None, *, norm, **_):
        # One factor, not two passes; the floor keeps a zero gradient from dividing by 0.
        # The training step has computed the norm, to see if it is finite.
        factor = jnp.minimum(scale, limit / jnp.maximum(norm, 1e-30)) if limit else scale
        return jax.tree.map(lambda g: g * factor, updates), state

    return optax.GradientTransformationExtraArgs(optax.init_empty_state, update)


class Moments(NamedTuple):
    """Adam's state; the leaves keep their parameters' names, and so their layout."""

    updates: jax.Array
    mu: Any
    nu: Any


def adam(b1: float, b2: float, eps: float, bias_correction: bool, eps_hat: bool):
    """Builds Adam's direction (Kingma & Ba 2015) in the variants the originals use.

    Args:
        b1, b2: what is left of the first moment after a step, what is left of the second.
        eps: the paper's epsilon; AdaDelta has one, too.
        bias_correction: divide the moments by 1 - b^t.  BERT's and XLNet's AdamW do not.
        eps_hat: add eps to the root before correction, the "epsilon hat" of the paper's section 2
            and of TensorFlow's Adam (GPT-1).  False adds it to the corrected root, as the paper's
            algorithm 1.
    """

    def init(params):
        zeros = jax.tree.map(jnp.zeros_like, params)
        # Trees of their own: one buffer cannot be donated twice.
        return Moments(jnp.zeros((), jnp.int32), zeros, jax.tree.map(jnp.zeros_like, params))

    def direction(m, v, t):
        first, second = (1 - b1**t, jnp.sqrt(1 - b2**t)) if bias_correction else (1.0, 1.0)
        # Eps is added to sqrt(v) / root: the plain root ("epsilon hat") or the corrected one.
        root = 1.0 if eps_hat else second
        return m / first * (second / root) / (jnp.sqrt(v) / root + eps)

    def update(grads, state, params=None, *, counts=None, **_):
        t = state.updates + 1  # of the optimiser: a skipped step does not count
        mu = jax.tree.map(lambda m, g: b1 * m + (1 - b1) * g, state.mu, grads)
        nu = jax.tree.map(lambda v, g: b2 * v + (1 - b2) * g * g, state.nu, grads)
        ts = jax.tree.map(lambda _: t, grads) if counts is None else counts
        return jax.tree.map(direction, mu, nu, ts), Moments(t, mu, nu)

    return optax.GradientTransformationExtraArgs(init, update)


def _make_rule(update: Callable[..., Any]) -> optax.GradientTransformationExtraArgs:
    def update_all(updates, state, params=None, *, infos, **_):
        return jax.tree.map(update, updates, params, infos), state

    return optax.GradientTransformationExtraArgs(optax.init_empty_state, update_all)


def decay_weights(rate: float, of_all: bool = False):
    """Adds a share of each parameter that decays (Loshchilov & Hutter 2019, arXiv 1711.05101).

    Args:
        of_all: every parameter does, as in PyTorch's optimisers.
    """
    return _make_rule(lambda u, p, info: u + rate * p if info.decay or of_all else u)


def scale_by_tokens(tokens: int):
    """Scales the update by the tokens that the batch predicts, as a share of `tokens`."""

    def update(updates, state, params=None, *, weight, **_):
        return jax.tree.map(lambda u: u * (weight / tokens), updates), state

    return optax.GradientTransformationExtraArgs(optax.init_empty_state, update)


def trust_ratio():
    """Scales updates as LAMB (You et al. 2020), by |parameter| / |update| of each layer."""

    def scale(u, p, info: ParamInfo):
        if not info.decay:  # as in the paper's code: biases and norms keep the plain step
            return u
        # Stacked layers are one array: its first axis is no part of a layer's norm.
        axes = tuple(range(isinstance(info.layers_above, tuple), u.ndim))
        norm = lambda x: jnp.sqrt(jnp.sum(jnp.square(x), axes, keepdims=True))  # noqa: E731
        size, step = norm(p), norm(u)
        # Zero weights keep the ratio 1: with 0 they would never move.
        return u * jnp.where((size > 0) & (step > 0), size / jnp.maximum(step, 1e-30), 1.0)

    return _make_rule(scale)


def assign_by_path(numbers: Mapping[str, float], params: Any, default: float) -> Any:
    """Gives each parameter the number of the longest path above it, in a parallel tree.

    Args:
        numbers: by path, a module's or a parameter's, as "backbone" or "backbone/token_VD".
        default: what a parameter has that is at or below none of the paths.

    Raises:
        UserError: there is no parameter at a path.
    """

    def paths_of(name: str) -> list[str]:
        return [path for path in numbers if f"{name}/".startswith(f"{path.rstrip('/')}/")]

    leaves, structure = jax.tree_util.tree_flatten_with_path(params)
    names = [path_name(path) for path, _ in leaves]
    if unknown := numbers.keys() - {path for name in names for path in paths_of(name)}:
        raise UserError(
            f"optim: there is no parameter at {min(unknown)!r}, but at {', '.join(names)}"
        )
    values = [
        numbers[max(paths_of(name), key=len)] if paths_of(name) else default for name in names
    ]
    return jax.tree.unflatten(structure, values)


def multiply(rates: Mapping[str, float]):
    """Multiplies the updates of the parameters at or below a path; the longest path counts."""

    def scale(updates, params=None):
        return jax.tree.map(lambda u, by: u * by, updates, assign_by_path(rates, updates, 1.0))

    return optax.stateless(scale)


def limit_columns(limits: Mapping[str, float]):
    """Scales columns of parameters down to a norm after the update (Hinton et al. 2012, A.1)."""

    def project(u, p, info: ParamInfo, limit: float):
        if not math.isfinite(limit):
            return u
        # A column holds what leads to one entry of the last dimension: to a class in `w_DC`.
        # The layers of a stack have columns of their own.
        axes = tuple(range(isinstance(info.layers_above, tuple), u.ndim - 1))
        new = p + u
        norm = jnp.sqrt(jnp.sum(jnp.square(new), axes, keepdims=True))
        # A ball, so that shorter columns stay as they are (arXiv 1207.0580).
        # An update again, as optax adds it to the parameter.
        return new * jnp.minimum(1, limit / jnp.maximum(norm, 1e-30)) - p

    def update(updates, state, params=None, *, infos, **_):
        limit_tree = assign_by_path(limits, updates, math.inf)
        return jax.tree.map(project, updates, params, infos, limit_tree), state

    return optax.GradientTransformationExtraArgs(optax.init_empty_state, update)


def with_infos(tx: optax.GradientTransformation, infos) -> optax.GradientTransformationExtraArgs:
    """Binds the `infos` that every update of an optimiser is given, see `make`."""
    update = optax.with_extra_args_support(tx).update
    return optax.GradientTransformationExtraArgs(tx.init, functools.partial(update, infos=infos))


# --- the section -----------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Optimizer:
    """The fields of a recipe's section `optim` beside those of the `Schedule`.

    Attributes:
        name: "adamw" (Loshchilov & Hutter 2019, arXiv 1711.05101), "lamb" (You et al. 2020, arXiv
            1904.00962: Adam whose every step is as long as the parameter, for batches of
            thousands of rows), "adagrad" (Duchi et al. 2011, ELMo's), "adadelta" (Zeiler 2012,
            arXiv 1212.5701: lr=1) or "sgd".
        b1, b2, eps, bias_correction, eps_hat: of `adam`.
        rho: share of AdaDelta's averages of squares that each step leaves of them.
        momentum: share of SGD's last step that is in the next one; 0: none.
        initial_accumulator: Adagrad's first sum of squares.
        weight_decay: share of the weights taken off per unit of learning rate, decoupled from
            the gradient; of the parameters made with `decay=True`.
        l2: times the weights it is added to the gradient, before the rule: the gradient of
            l2 / 2 times the sum of their squares, of the parameters made with `decay=True`.
        decay_all: `weight_decay` and `l2` are of all parameters, biases and norms too.
        lr_tokens: predicted tokens of a batch that learns at `lr`; another's rate is in proportion
            to its own (Merity et al. 2017, section 5); 0: the rate is the same for all.
        clip: limit of the norm of the global mean gradient, `l2` apart; 0: none.
        clip_value: limit of each entry of the gradient; 0: none.
        max_norm: path -> the norm that columns have at most after a step, see `limit_columns`.
        grad_scale: what the gradient is multiplied by first, where it matters (ELMo's Adagrad,
            whose loss is one per row of the batch instead of one per token).
        freeze: a path, as "backbone": the parameters there are frozen; "": none are.
        rates: path -> factor of the updates there; of several the longest path counts.
        layer_lr_decay: factor per layer downwards, see `layer_rules.layer_decay`; 1: none learns
            slower.
        unfreeze_every: steps from one layer to the next, see `layer_rules.gradual_unfreezing`; 0:
            all at once, or as the `stages` of the `Schedule` say.
        chain_thaw: of stages, see `layer_rules.stage_unfreezing`.
    """

    name: str = "adamw"
    b1: float = 0.9
    b2: float = 0.999
    eps: float = 1e-6
    bias_correction: bool = True
    eps_hat: bool = False
    initial_accumulator: float = 1.0
    rho: float = 0.95
    momentum: float = 0.0
    weight_decay: float = 0.0
    l2: float = 0.0
    decay_all: bool = False
    lr_tokens: int = 0
    clip: float = 0.0
    clip_value: float = 0.0
    grad_scale: float = 1.0
    freeze: str = ""
    rates: Mapping[str, float] | None = None
    layer_lr_decay: float = 1.0
    unfreeze_every: int = 0
    chain_thaw: bool = False
    max_norm: Mapping[str, float] | None = None

    def __post_init__(self):
        if self.name not in DIRECTIONS:
            raise UserError(f"optim.name={self.name!r} is none of {', '.join(DIRECTIONS)}")

    @property
    def is_entrywise(self) -> bool:
        """Returns whether entries are updated one by one, and none whose gradient is 0."""
        # What was before moves an entry by momentum, Adam and AdaDelta; weights decay without a
        # gradient; a layer's entries share LAMB's ratio and the norm of a column.
        stays = self.name == "adagrad" or (self.name == "sgd" and not self.momentum)
        return stays and not (self.weight_decay or self.l2 or self.max_norm)

    def transformations(self, begins: Sequence[int]) -> list[optax.GradientTransformation]:
        """Lists what is done to mean gradients, in turn, before the learning rate.

        Args:
            begins: the step at which each stage begins; of a single stage nothing is unfrozen.
        """
        if len(begins) > 1 and self.unfreeze_every:
            raise UserError("optim: stages say when layers are unfrozen; set unfreeze_every=0")
        # In the order of the papers: decoupled decay after Adam's direction, LAMB's ratio of both.
        rules = (
            (self.clip or self.grad_scale != 1, lambda: clip_to(self.clip, self.grad_scale)),
            (self.l2, lambda: decay_weights(self.l2, self.decay_all)),
            (self.clip_value, lambda: optax.clip(self.clip_value)),
            (True, lambda: DIRECTIONS[self.name](self)),
            (self.weight_decay, lambda: decay_weights(self.weight_decay, self.decay_all)),
            (self.name == "lamb", trust_ratio),
            (self.layer_lr_decay != 1, lambda: layer_rules.layer_decay(self.layer_lr_decay)),
            (self.rates, lambda: multiply(dict(self.rates or {}))),
            (self.freeze, lambda: multiply({self.freeze: 0.0})),
            (self.unfreeze_every, lambda: layer_rules.gradual_unfreezing(self.unfreeze_every)),
            (len(begins) > 1, lambda: layer_rules.stage_unfreezing(begins, self.chain_thaw)),
            (self.lr_tokens, lambda: scale_by_tokens(self.lr_tokens)),
        )
        return [build() for wanted, build in rules if wanted]


def _make_adam(section: Optimizer) -> optax.GradientTransformation:
    return adam(section.b1, section.b2, section.eps, section.bias_correction, section.eps_hat)


DIRECTIONS: dict[str, Callable[[Optimizer], optax.GradientTransformation]] = {
    "adamw": _make_adam,
    "lamb": _make_adam,
    # No eps, as in TensorFlow: the accumulator begins above 0 instead.
    "adagrad": lambda section: optax.scale_by_rss(section.initial_accumulator, eps=0.0),
    "adadelta": lambda section: optax.scale_by_adadelta(section.rho, section.eps),
    "sgd": lambda section: optax.trace(section.momentum) if section.momentum else optax.identity(),
}


def make(**section: Any) -> tuple[optax.GradientTransformationExtraArgs, Schedule]:
    """Builds the optimiser of a recipe's `optim` section, the fields of `Schedule` and `Optimizer`.

    Returns:
        (transformation of mean gradients, learning rate by step).  The transformation's update
        takes the global `norm` of the gradients, the `weight` of the loss and the parameters'
        `infos` as keywords.

    Raises:
        plugins.FieldError: a field is neither's.
        UserError: there is no such optimiser or schedule.
    """
    scheduled = plugins.select_fields(Schedule, section)
    rest = {name: value for name, value in section.items() if name not in scheduled}
    rate = plugins.construct(Schedule, **scheduled)
    optimizer = plugins.construct(Optimizer, **rest)
    last = [limit_columns(dict(optimizer.max_norm))] if optimizer.max_norm else []
    # After the learning rate: the ball is one of the weights that the step leads to.
    rules = [
        *optimizer.transformations(rate.stage_begins()),
        optax.scale_by_learning_rate(rate),
        *last,
    ]
    tx = optax.with_extra_args_support(optax.chain(*rules))
    return (EntrywiseTransformation(*tx) if optimizer.is_entrywise else tx), rate
