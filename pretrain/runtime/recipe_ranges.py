"""Ranges of a recipe's numbers: one table, looked at before anything is read or compiled."""

import dataclasses
import math
import re
from collections.abc import Iterator, Mapping
from numbers import Integral, Real
from typing import Any

from ml_collections import ConfigDict

from pretrain.runtime.errors import UserError


@dataclasses.dataclass(frozen=True)
class Range:
    """An interval of numbers.

    Attributes:
        low, high: its ends.
        ends: which of them belong to it, as in mathematics: "[)" holds low and not high.
        is_whole: it holds whole numbers alone.
        besides: a number outside it that is allowed, too.
    """

    low: float = 0
    high: float = math.inf
    ends: str = "[]"
    is_whole: bool = False
    besides: int | None = None

    def __contains__(self, value: float) -> bool:
        if not math.isfinite(value) or (self.is_whole and not isinstance(value, Integral)):
            return False
        above = value >= self.low if self.ends[0] == "[" else value > self.low
        below = value <= self.high if self.ends[1] == "]" else value < self.high
        return (above and below) or value == self.besides

    def __str__(self) -> str:
        low = "at least" if self.ends[0] == "[" else "above"
        high = "at most" if self.ends[1] == "]" else "below"
        ends = ((low, self.low), (high, self.high))
        bounds = " and ".join(f"{word} {end}" for word, end in ends if math.isfinite(end))
        also = "" if self.besides is None else f"or {self.besides}"
        return ", ".join(filter(None, ["a whole number" * self.is_whole, bounds, also]))


COUNT = Range(1, is_whole=True)
COUNT_OR_NONE = Range(0, is_whole=True)
SEED = Range(0, 2**32 - 1, is_whole=True)
NOT_NEGATIVE = Range(0)
POSITIVE = Range(0, ends="(]")
SHARE = Range(0, 1)
SHARE_ABOVE_0 = Range(0, 1, "(]")
SHARE_BELOW_1 = Range(0, 1, "[)")

# By section: names of fields and their range.  0 turns many of them off, see where each is used.
TABLE: dict[str, dict[str, Range]] = {
    "": {
        "seed": SEED,
        "num_seeds": COUNT,
        "epochs": POSITIVE,
        "max_train_examples": COUNT_OR_NONE,
        "init_layers": COUNT,
    },
    "mesh": {"data fsdp tensor": dataclasses.replace(COUNT, besides=-1)},  # -1: what remains
    "corpus": {"held_out": SHARE_BELOW_1},
    "data": {
        "folds fold random_negatives ratio": COUNT_OR_NONE,
        "dev_share": SHARE_BELOW_1,
        "split_seed seed": SEED,
        "classes": COUNT,
    },
    "vectors": {"scale": NOT_NEGATIVE},
    "tokens": {"V sample": COUNT, "types extend": COUNT_OR_NONE},
    "batches": {
        "B L eval_B reuse_len lengths bptt texts": COUNT,
        "characters overlap pack": COUNT_OR_NONE,
        "short_seq_prob short": SHARE,
        "std": NOT_NEGATIVE,
        "share": SHARE_BELOW_1,
    },
    "model": {
        "D H K N F L E U filters": COUNT,
        "V W S M embedding_size reuse_len window highways own_D": COUNT_OR_NONE,
        "Z": Range(1, 2, is_whole=True),
        "clamp_len": dataclasses.replace(COUNT_OR_NONE, besides=-1),  # -1: off
        "dropout attention_dropout rnn_dropout": SHARE_BELOW_1,
        "dropoute dropouti dropouth wdrop": SHARE_BELOW_1,
        "epsilon": POSITIVE,
        "init_scale position_scale clip_cell clip_projection": NOT_NEGATIVE,
    },
    "head": {
        "D": COUNT,
        "V embedding_size": COUNT_OR_NONE,
        "epsilon": POSITIVE,
        "init_scale": NOT_NEGATIVE,
    },
    "objective": {
        "max_gram predict_every alpha beta": COUNT,
        "max_predictions perm_size samples cache_window": COUNT_OR_NONE,
        "mask_prob": SHARE_ABOVE_0,
        "mask_rate random_rate geometric": SHARE,
        "dropout cache_share": SHARE_BELOW_1,
        "ar tar cache_theta": NOT_NEGATIVE,
    },
    "execution": {"block loss_chunks pieces": COUNT, "unroll": COUNT_OR_NONE},
    "optim": {
        "steps": COUNT,
        "decay_steps lr_tokens": COUNT_OR_NONE,
        "lr warmup end_factor initial_accumulator weight_decay clip rates": NOT_NEGATIVE,
        "l2 clip_value": NOT_NEGATIVE,
        "max_norm stages": POSITIVE,
        "layer_lr_decay unfreeze_every": NOT_NEGATIVE,
        "eps grad_scale stlr_ratio": POSITIVE,
        "b1 b2 rho momentum": SHARE_BELOW_1,
        "stlr_cut_frac": SHARE,
    },
    "train": {
        "parts max_skips keep": COUNT,
        "log_every eval_every eval_batches save_every keep_every stop_after": COUNT_OR_NONE,
        "average": SHARE_BELOW_1,
    },
    "task": {
        "stride max_query max_answer n_best ks layers": COUNT,
        "min_count own_characters options rows history": COUNT_OR_NONE,
        "seed": SEED,
        "language_model weight": NOT_NEGATIVE,
        "threshold": Range(-math.inf, 1),  # below 0: the one that does best
    },
    "task.encoder": {
        "U layers copies": COUNT,
        "window word_D word_V char_W join": COUNT_OR_NONE,
        "dropout word_dropout input_dropout": SHARE_BELOW_1,
        "l2 weight ar tar": NOT_NEGATIVE,
    },
    "task.encoder.characters": {"E U filters": COUNT, "dropout": SHARE_BELOW_1},
    "task.head": {
        "dropout hidden_dropout": SHARE_BELOW_1,
        "top C U layers heads": COUNT,
        "pool_last": COUNT_OR_NONE,
        "scale": NOT_NEGATIVE,
    },
    "task.loss": {
        "margin mu weights weight noise_norm hidden": NOT_NEGATIVE,
        "soft": SHARE,
        "temperature sigma": POSITIVE,
        "rates": SHARE,
        "hard_negative_weight": Range(-math.inf),  # added to a logit
    },
    "mixture": {"power": NOT_NEGATIVE},
    "study": {
        "T U B N D seeds": COUNT,
        "burn_in": COUNT_OR_NONE,
        "radius radii": POSITIVE,
        "clips": NOT_NEGATIVE,
    },
    "cell": {"forget_bias": Range(-math.inf)},
}
RANGES = {
    f"{section}.{name}".lstrip("."): allowed
    for section, fields in TABLE.items()
    for names, allowed in fields.items()
    for name in names.split()
}
FINETUNING = {"optim.steps": COUNT_OR_NONE}  # 0: as many as the epochs have

# Sections that are others by another name, and mappings whose keys name no fields.
ALIASES = (
    (r"^(first_phase|evals\.[^.]+)\.", "batches."),
    (r"^corpus\.tokens\.", "tokens."),
    (r"^corpus\.data\.([^.]+\.)?", "data."),  # of one data set, or of several by name
    (r"^tasks\.[^.]+\.weight$", "task.weight"),
    (r"^tasks\.[^.]+\.", ""),
    (r"^task\.parts\.[^.]+\.", "task."),
    (r"^task\.encoder\.features\.", "task.encoder."),
    (r"^optim\.(rates|max_norm)\..*", r"optim.\1"),
    (r"^(cells\.[^.]+|exploding\.cell)\.", "cell."),
    (r"^(exploding|adding)\.optim\.", "optim."),
    (r"^(decay|sweep|deep|exploding|adding|runs)\.", "study."),
)


def check_config(config: ConfigDict) -> None:
    """Compares every number of a recipe with its range.

    Raises:
        UserError: names those out of range, and what is allowed.
    """
    finetuning = FINETUNING if "epochs" in config else {}
    wrong = []  # all of them at once, so that a recipe is mended in one go
    for key, value in iter_numbers(config):
        allowed = finetuning.get(key) or find_range(key)
        if value not in (allowed or Range(-math.inf)):
            wrong.append(f"{key}={value} is to be {allowed or 'a finite number'}")
    if wrong:
        raise UserError("; ".join(wrong))


def find_range(key: str) -> Range | None:
    """Returns the range of the number of this dotted name; None: the table has none."""
    return RANGES.get(name_section(key))


def name_section(key: str) -> str:
    """Returns the name that the table has for a dotted name, as "batches.L" of an evaluation's."""
    for pattern, name in ALIASES:
        key = re.sub(pattern, name, key)
    return key


def iter_numbers(values: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """Yields every number of a recipe with its dotted name, those of a tuple with the tuple's."""
    if isinstance(values, ConfigDict | Mapping):
        for name, value in values.items():
            yield from iter_numbers(value, f"{key}.{name}".lstrip("."))
    elif isinstance(values, list | tuple):
        for value in values:
            yield from iter_numbers(value, key)
    elif isinstance(values, Real) and not isinstance(values, bool):  # a bool is an int in Python
        yield key, values
