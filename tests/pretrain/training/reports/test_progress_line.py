"""A person sees how far a run is, how fast, and how long it will take."""

import pytest

from pretrain.training.reports.progress_line import Progress

STEP = dict(loss=2.5, lr=1e-3, steps_per_s=0.5, tokens_per_s=12_345.0, data_wait=0.012)


@pytest.mark.parametrize(
    ("values", "line"),
    [
        (STEP, "step 100/2000  loss 2.5000  lr 1.00e-03  12.3k tokens/s  data wait 1.2%  1:03:20"),
        (STEP | dict(steps_per_s=0.0), "step 100/2000  loss 2.5000  lr 1.00e-03"),  # the first step
        (STEP | dict(utilisation=0.42), "12.3k tokens/s  42% of peak  data wait"),
    ],
)
def test_a_line_says_place_pace_and_what_is_left(capsys, values, line):
    Progress(2000).show(100, values)
    assert line in capsys.readouterr().err
