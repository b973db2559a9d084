"""Learning-rate schedules: a rate for each step."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp

from pretrain.runtime.errors import UserError

Schedule = Callable[[Any], Any]


# --- schedules -----------------------------------------------------------------------------


def schedule(
    *,
    lr: float,
    steps: int,
    warmup: int = 0,
    decay: str = "linear",
    end: float = 0.0,
    join: str = "after",
    decay_steps: int = 0,
    cut: float = 0.1,
    ratio: float = 32.0,
) -> Schedule:
    """Learning rate by step, counted from 0.

    Args:
        lr: the peak.  steps: of the whole run.  warmup: steps of linear rise from 0.
        decay: "linear", "cosine", "rsqrt" (inverse square root), "constant", or "slanted":
            the slanted triangle of ULMFiT (Howard & Ruder 2018), from `cut` and `ratio`.
        end: the last rate, as a share of the peak (linear and cosine).
        decay_steps: the step at which that is reached; 0: the last.
        join: how warm-up meets decay: "after" (decay runs over the steps that remain: XLNet),
            "switch" (decay runs from step 0 and jumps in: BERT), "product" (both at once: GPT).
    """
    if decay == "slanted":
        return _slanted(lr, steps, cut, ratio)
    if decay not in DECAYS or join not in ("after", "switch", "product"):
        raise UserError(f"optim: no schedule with decay={decay!r} and join={join!r}")

    def rate(step):
        start, stop = warmup if join == "after" else 0, decay_steps or steps
        done = jnp.clip((step - start) / max(stop - start, 1), 0, 1)
        rise = jnp.minimum(step / max(warmup, 1), 1) if warmup else 1.0
        fall = DECAYS[decay](done, end, step, warmup)
        return lr * (rise * fall if join == "product" else jnp.where(step < warmup, rise, fall))

    return rate


DECAYS: dict[str, Callable[[Any, float, Any, int], Any]] = {
    "linear": lambda done, end, step, warmup: 1 - (1 - end) * done,
    "cosine": lambda done, end, step, warmup: end + (1 - end) * (1 + jnp.cos(jnp.pi * done)) / 2,
    "rsqrt": lambda done, end, step, warmup: jnp.sqrt(
        max(warmup, 1) / jnp.maximum(step, max(warmup, 1))
    ),
    "constant": lambda done, end, step, warmup: jnp.ones_like(done),
}


def _slanted(lr: float, steps: int, cut: float, ratio: float) -> Schedule:
    peak = max(int(steps * cut), 1)

    def rate(step):
        p = jnp.where(step < peak, step / peak, 1 - (step - peak) / max(steps - peak, 1))
        return lr * (1 + jnp.clip(p, 0, 1) * (ratio - 1)) / ratio

    return rate
