"""Learning-rate schedules: a rate for each step."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp

from pretrain.runtime.errors import UserError

# Shares of the peak, from (share of the decay that is done, end_factor, step, warmup).
DECAYS: dict[str, Callable[[Any, float, Any, int], Any]] = {
    "linear": lambda done, end, step, warmup: 1 - (1 - end) * done,
    "cosine": lambda done, end, step, warmup: end + (1 - end) * (1 + jnp.cos(jnp.pi * done)) / 2,
    "rsqrt": lambda done, end, step, warmup: jnp.sqrt(
        max(warmup, 1) / jnp.maximum(step, max(warmup, 1))
    ),
    "constant": lambda done, end, step, warmup: jnp.ones_like(done),
}
JOINS = ("after", "switch", "product")


@dataclasses.dataclass(frozen=True)
class Schedule:
    """Learning rate by step, counted from 0; part of the recipe's `optim` section.

    Attributes:
        lr: the peak.
        steps: of the whole run.
        warmup: steps of linear rise from 0.
        decay: one of `DECAYS` ("rsqrt": inverse square root), or "slanted": the slanted triangle
            of ULMFiT (Howard & Ruder 2018, arXiv 1801.06146), which `warmup`, `join`,
            `end_factor` and `decay_steps` do not bear on.
        end_factor: the last rate, as a share of the peak (linear and cosine).
        decay_steps: the step at which that is reached; 0: the last.
        join: how warm-up meets decay: "after" (decay runs over the steps that remain: XLNet),
            "switch" (decay runs from step 0 and jumps in: BERT), "product" (both at once: GPT-1).
        stlr_cut_frac, stlr_ratio: of the slanted triangle: the share of the steps that rise; how
            many times the peak is the lowest rate.
    """

    lr: float
    steps: int
    warmup: int = 0
    decay: str = "linear"
    end_factor: float = 0.0
    decay_steps: int = 0
    join: str = "after"
    stlr_cut_frac: float = 0.1
    stlr_ratio: float = 32.0

    def __post_init__(self):
        if self.decay not in (*DECAYS, "slanted") or self.join not in JOINS:
            raise UserError(f"optim: no schedule with decay={self.decay!r} and join={self.join!r}")

    def __call__(self, step):
        """Computes the rate of a step, a number or a traced array."""
        return (
            self._rise_and_fall_slanted(step)
            if self.decay == "slanted"
            else self._rise_and_fall(step)
        )

    def _rise_and_fall(self, step):
        warmup, stop = self.warmup, self.decay_steps or self.steps
        # XLNet's original counts decay from the end of warm-up, BERT's and GPT-1's from step 0.
        start = warmup if self.join == "after" else 0
        done = jnp.clip((step - start) / max(stop - start, 1), 0, 1)
        rise = jnp.minimum(step / max(warmup, 1), 1) if warmup else 1.0
        fall = DECAYS[self.decay](done, self.end_factor, step, warmup)
        if self.join == "product":
            return self.lr * (rise * fall)
        return self.lr * jnp.where(step < warmup, rise, fall)

    def _rise_and_fall_slanted(self, step):
        # Howard & Ruder 2018, equation 3: `peak` is cut, `p` is p.
        peak = max(int(self.steps * self.stlr_cut_frac), 1)
        fall = 1 - (step - peak) / max(self.steps - peak, 1)
        p = jnp.clip(jnp.where(step < peak, step / peak, fall), 0, 1)
        return self.lr * (1 + p * (self.stlr_ratio - 1)) / self.stlr_ratio
