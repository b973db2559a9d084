"""`python -m pretrain.score` prints a line of numbers for each text."""

import math
from unittest import mock

import pytest
from absl.testing import flagsaver

from pretrain import score
from pretrain.inference.token_scorer import Score
from pretrain.runtime.errors import UsageError


def test_each_text_has_its_nats_tokens_and_perplexity(capsys):
    scores = [Score(["a", "b"], [-1.0, -3.0])]
    scorer = mock.Mock(score=mock.Mock(return_value=scores))
    fakes = dict(load_run=mock.Mock(), TokenScorer=mock.Mock(return_value=scorer))
    score.flags.FLAGS.mark_as_parsed()
    with flagsaver.flagsaver(text=["a b"]), mock.patch.multiple(score, **fakes):
        score.main([])
    assert capsys.readouterr().out == f"-4.0000\t2\t{math.exp(2):.4f}\ta b\n"
    with flagsaver.flagsaver(text=[]), pytest.raises(UsageError, match="name a text"):
        score.main([])
