"""Learning-rate schedules: a rate for each step."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np

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
        lr: the learning rate at its peak.
        steps: all that the run takes.
        warmup: steps of linear rise from 0.
        decay: one of `DECAYS` ("rsqrt": inverse square root), or "slanted": the slanted triangle
            of ULMFiT (Howard & Ruder 2018, arXiv 1801.06146), which `warmup`, `join`,
            `end_factor` and `decay_steps` do not bear on.
        end_factor: the last rate, as a share of the peak (linear and cosine).
        decay_steps: the step at which that is reached; 0: the last.
        join: how warm-up meets decay: "after" (decay runs over the steps that remain: XLNet),
            "switch" (decay runs from step 0 and jumps in: BERT), "product" (both at once: GPT-1).
        stlr_cut_frac, stlr_ratio: of the slanted triangle: the share of the steps that rise, which
            each stage may have of its own; how many times the peak is the lowest rate.
        stages: relative lengths of the stages of a run, as (1, 1, 4): each has a triangle of its
            own, and unfreezes a layer (`layer_rules.stage_unfreezing`); (): one for all steps.
    """

    lr: float
    steps: int
    warmup: int = 0
    decay: str = "linear"
    end_factor: float = 0.0
    decay_steps: int = 0
    join: str = "after"
    stlr_cut_frac: float | tuple[float, ...] = 0.1
    stlr_ratio: float = 32.0
    stages: tuple[float, ...] = ()

    def __post_init__(self):
        count = max(len(self.stages), 1)
        if isinstance(self.stlr_cut_frac, tuple) and len(self.stlr_cut_frac) != count:
            raise UserError(
                f"optim.stlr_cut_frac={self.stlr_cut_frac}: one share, or one for each of the "
                f"stages {self.stages}"
            )
        if self.decay not in (*DECAYS, "slanted") or self.join not in JOINS:
            raise UserError(f"optim: no schedule with decay={self.decay!r} and join={self.join!r}")

    def list_notes(self) -> list[str]:
        """Lists what the user should know of a rate that is allowed, and is hardly meant."""
        if self.decay == "slanted" or self.warmup < self.steps:
            return []
        return [
            f"optim.warmup={self.warmup} of {self.steps} steps: the rate never reaches optim.lr"
        ]

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

    def stage_begins(self) -> list[int]:
        """Lists the step at which each stage begins."""
        shares = np.cumsum([0.0, *self.stages])
        return [round(self.steps * x / max(shares[-1], 1e-9)) for x in shares[:-1]] or [0]

    def _rise_and_fall_slanted(self, step):
        # Howard & Ruder 2018, equation 3, of the stage: `peak` is cut, `p` is p.
        begins_N = np.array(self.stage_begins())
        sizes_N = np.diff([*begins_N, self.steps])
        peaks_N = np.maximum((sizes_N * np.array(self.stlr_cut_frac)).astype(int), 1)
        stage = (jnp.asarray(begins_N) <= step).sum() - 1
        begin, size, peak = (jnp.asarray(x_N)[stage] for x_N in (begins_N, sizes_N, peaks_N))
        at = step - begin
        fall = 1 - (at - peak) / jnp.maximum(size - peak, 1)
        p = jnp.clip(jnp.where(at < peak, at / peak, fall), 0, 1)
        return self.lr * (1 + p * (self.stlr_ratio - 1)) / self.stlr_ratio
