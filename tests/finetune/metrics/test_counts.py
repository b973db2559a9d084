"""Ratios of counts are fractions, and 0 of nothing."""

from finetune.metrics.counts import Counts


def test_ratios_are_of_predictions_references_and_both():
    counts = Counts(correct=1, predicted=2, actual=4)
    assert (counts.precision, counts.recall, counts.f1) == (1 / 2, 1 / 4, 2 / 6)


def test_ratios_of_nothing_are_zero():
    assert (Counts(0, 0, 0).precision, Counts(0, 0, 0).recall, Counts(0, 0, 0).f1) == (0, 0, 0)
