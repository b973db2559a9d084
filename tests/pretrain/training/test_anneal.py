"""The rate falls when the best evaluation is long ago, a few times, and then the run ends."""

import json
import math

import pytest

from pretrain.training.anneal import Hook
from pretrain.training.hooks import Report

VALUES = [0.1, 0.3, math.nan, 0.2, 0.9, 0.2, 0.95, 0.1, 0.1]
RATES = [None, None, None, 0.5, None, 0.25, None, None]  # cut two after the best, and two later


@pytest.mark.parametrize("sign", [1, -1])
def test_cuts_come_after_patience_and_length_also_when_resumed(sign):
    metric = "-dev/loss" if sign < 0 else "dev/f1"
    fields = dict(metric=metric, patience=2, factor=0.5, cuts=2, length=2)
    hook, seen = Hook(**fields), []
    for value in VALUES:
        hook(1, None, Report())  # a step without an evaluation counts nothing
        hook(1, None, report := Report(held_out={metric.removeprefix("-"): sign * value}))
        saved = json.loads(json.dumps(hook.state_dict()))
        hook = Hook(**fields)
        hook.load_state_dict(saved, Report())
        if report.is_finished:
            break
        seen.append(report.scalars.get("lr_scale"))
    assert seen == RATES[: len(seen)]
    assert len(seen) == 7
