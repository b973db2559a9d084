"""A run whose training came to nothing says so, and is no success."""

import pytest
from flax import struct
from ml_collections import ConfigDict

from pretrain.runtime.errors import UserError
from pretrain.training.hooks import Evaluation
from pretrain.training.loop import Result
from pretrain.training.reports import summary
from pretrain.training.reports.metrics_file import Writer, to_json


class Ended(struct.PyTreeNode):
    """What the report reads of a train state."""

    step: int = 4
    skipped: int = 0


@pytest.fixture
def close(tmp_path, capsys):
    """(state, values of the evaluations at steps 2 and 4) -> what the report prints."""

    def close(state, *evaluations):
        writer = Writer(tmp_path, 0)
        for step, values in zip((2, 4), evaluations, strict=True):
            writer.write(step, loss=1.0)
            writer.write(step, **{f"held_out/{name}": x for name, x in values.items()})
        writer.close()
        recipe = ConfigDict(dict(evals=dict(held_out=dict()), optim=dict(steps=4)))
        last = {f"held_out/{name}": to_json(x) for name, x in evaluations[-1].items()}
        finished = state.step == 4
        summary.close(recipe, tmp_path, Result(state, finished, Evaluation(4, last)))
        return capsys.readouterr().out

    return close


def test_what_was_learned_is_told_first_and_last(close):
    values = {"loss": 3.0, "perplexity": 20.0, "word_perplexity": 30.0, "unigram": 3.5}
    said = close(Ended(), {"loss": 4.0, "perplexity": 50.0}, values)
    assert said.startswith("Finished at step 4 of 4.\nheld_out: loss 3.000 (at step 2: 4.000), ")
    assert "perplexity 20.0 (30.0 per word); guessing by frequency alone: 3.500" in said


@pytest.mark.parametrize("first", [4.0, float("nan")])
def test_weights_that_overflow_end_the_report_in_a_line(close, capsys, first):
    with pytest.raises(UserError, match=r"held_out/loss is not finite.*optim\.lr"):
        close(Ended(), {"loss": first}, {"loss": float("inf"), "perplexity": float("nan")})
    assert "held_out: loss not finite (at step 4)" in capsys.readouterr().out


def test_a_loss_that_was_not_finite_once_is_forgiven(close):
    said = close(Ended(skipped=3), {"loss": float("nan")}, {"loss": 3.0})
    assert "held_out: loss 3.000 (at step 4: 3.000)" in said


def test_a_run_whose_steps_were_all_skipped_is_no_success(close, capsys):
    with pytest.raises(UserError, match="all 4 steps were skipped, so nothing was learned"):
        close(Ended(skipped=4), {"loss": 3.0}, {"loss": 3.0})
    assert "Finished at step 4 of 4." in capsys.readouterr().out


def test_a_run_that_was_stopped_is_not_judged_yet(close):
    said = close(Ended(step=2, skipped=2), {"loss": None}, {"loss": None})
    assert said.startswith("Stopped at step 2 of 4.")


def test_numbers_too_large_to_be_read_are_shortened(close):
    said = close(Ended(), {"loss": 2e12}, {"loss": 2e12, "perplexity": 1e304})
    assert "loss 2.000e+12 (at step 2: 2.000e+12), perplexity 1.000e+304" in said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((4, 9, False), "Stopped at step 4 of 9"),
        ((9, 9, True), "Finished at step 9 of 9"),
        ((9, 9, False), "Stopped at step 9 of 9: training is done, the last evaluation is still "),
        ((4, 9, False, "predictions are"), "Stopped at step 4 of 9: training is done, predictions"),
    ],
)
def test_the_end_of_a_run_says_what_is_missing(arguments, said):
    end = summary.describe_end(*arguments)
    assert end.startswith(said)
    assert end.endswith(" missing" if "done" in said else said[-1])


def test_a_run_without_its_last_evaluation_says_so(tmp_path, capsys):
    recipe = ConfigDict(dict(evals=dict(held_out=dict()), optim=dict(steps=4)))
    summary.close(recipe, tmp_path, Result(Ended(), False, None))
    out = capsys.readouterr().out
    assert out.startswith("Stopped at step 4 of 4: training is done, the last evaluation is still")
    assert summary.NEXT in out
