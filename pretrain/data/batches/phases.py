"""Phases: so many batches of one layout, then those of another (BERT: short rows, then long)."""

import dataclasses
from collections.abc import Mapping
from typing import Any, TypeGuard

from pretrain.data.batches import BatchLayout, BatchShapes, build, configure
from pretrain.runtime.errors import UserError


@dataclasses.dataclass(frozen=True)
class Phases:
    """The batches of `first` for `steps` steps, then those of `then` from its own step 0 on.

    BERT's rows are of 128 tokens for 90% of its steps, then of 512 (Devlin et al., 2019, A.2).

    Raises:
        UserError: there is no first step, or a layout ends.
    """

    first: BatchLayout
    then: BatchLayout
    steps: int

    def __post_init__(self):
        if self.steps < 1:
            raise UserError(f"steps={self.steps}: the first phase has 1 or more")
        if not (self.first.shuffle and self.then.shuffle):
            raise UserError("phases are for training: held-out text is read once, by one layout")

    def fingerprint(self) -> dict[str, Any]:
        # The position is one number still: steps of the first, then of the second.
        first, then = self.first.fingerprint(), self.then.fingerprint()
        return dict(layout="phases", first=first, then=then, steps=self.steps)


def build_training(
    corpus,
    seed: int,
    steps: int,
    batches: Mapping[str, Any],
    first: Mapping[str, Any] | None = None,
) -> BatchLayout | Phases:
    """Builds the layout to train on; two in turn (`Phases`) where there is a `first`.

    Args:
        steps: of the whole run.
        batches: name and fields of the layout, see `build`.
        first: how they differ in the first of the steps, e.g. {"share": 0.9, "L": 128}.

    Keys:
        share: of all steps, which has the first batches; 0: there is one phase.

    Raises:
        plugins.FieldError: the fields do not fit the layout.
        UserError: they do not fit the text.
    """
    then = build(corpus=corpus, seed=seed, **batches)
    if not has_first(first):
        return then
    share = first["share"]
    if not 0 < share < 1:
        raise UserError(f"first_phase.share={share}: it is a share of the steps, from 0 to below 1")
    fields = _merge_first(batches, first)
    return Phases(build(corpus=corpus, seed=seed, **fields), then, round(share * steps))


def has_first(first: Mapping[str, Any] | None) -> TypeGuard[Mapping[str, Any]]:
    """Returns whether a recipe has a first phase; raises a UserError if it lacks its share."""
    if first and "share" not in first:
        raise UserError("first_phase.share is missing: it is the first phase's share of the steps")
    return bool(first and first["share"])


def configure_training(
    batches: Mapping[str, Any], first: Mapping[str, Any] | None = None
) -> list[BatchShapes]:
    """Builds the layouts of a recipe's phases, in turn, without a text: their shapes are known."""
    phases = [_merge_first(batches, first)] if has_first(first) else []
    return [configure(**fields) for fields in (*phases, batches)]


def _merge_first(batches: Mapping[str, Any], first: Mapping[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in {**batches, **first}.items() if k != "share"}
