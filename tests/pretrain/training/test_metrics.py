"""Sums stay sums until they are printed."""

import math

import numpy as np
import pytest

from modules.metrics import Sum, add
from pretrain.runtime.errors import UserError
from pretrain.training import anneal, nt_asgd
from pretrain.training.hooks import Report
from pretrain.training.metrics import compute_means, read_metric, split_direction


def test_a_mean_is_divided_once_over_all_batches():
    small, large = ({"loss": Sum(t, w, "nats", train=True)} for t, w in ((6.0, 2.0), (1.0, 8.0)))
    values = compute_means(add(add({}, small), large))
    assert values["loss"] == pytest.approx(0.7)  # the mean of the two means would be 1.5625
    assert values["perplexity"] == pytest.approx(math.exp(0.7))


def test_a_mean_over_nothing_is_left_out_and_a_huge_loss_has_a_perplexity():
    assert compute_means({"accuracy": Sum(0.0, 0.0, "share")}) == {}
    assert math.isfinite(compute_means({"loss": Sum(1e9, 1.0, "nats")})["perplexity"])


def test_the_unit_alone_decides_what_is_printed():
    pair = (3.0, 2.0)
    assert compute_means({"x_loss": Sum(*pair, train=True), "y_nats": Sum(*pair)}) == {
        "x_loss": 1.5,
        "y_nats": 1.5,
    }
    assert compute_means({"word": Sum(*pair, "perplexity")}) == {
        "word": pytest.approx(math.exp(1.5))
    }


def test_a_histogram_becomes_what_the_best_constant_guess_costs():
    one, other = ({"x": Sum(np.array(c), sum(c), "unigram")} for c in ([3.0, 1, 0], [1.0, 1, 2]))
    values = compute_means(add(one, other))
    assert values == {"x": pytest.approx(-sum(p * math.log(p) for p in (0.5, 0.25, 0.25)))}


def test_a_minus_in_front_says_that_lower_is_better():
    assert split_direction("-dev/loss") == ("dev/loss", -1)
    assert split_direction("dev/f1") == ("dev/f1", 1)


def test_a_metric_that_no_evaluation_has_is_refused_by_its_key():
    values = {"dev/loss": 2.0, "dev/f1": 0.5}
    assert read_metric(values, "-dev/loss", "train.best") == -2.0
    with pytest.raises(UserError, match=r"hooks\.anneal\.metric='dev/f2': there are dev/loss, "):
        anneal.Hook("dev/f2")(1, None, Report(held_out=values))
    with pytest.raises(UserError, match=r"hooks\.nt_asgd\.metric='-dev/los': there are"):
        nt_asgd.Hook("-dev/los")(1, None, Report(held_out=values))
