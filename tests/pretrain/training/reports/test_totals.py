"""What a run has spent adds up over its lives."""

from pretrain.training.reports import metrics_file
from pretrain.training.reports.totals import Totals
from tests.support import regression


def test_a_later_life_goes_on_from_what_a_checkpoint_knew():
    clock = iter([0.0, 5.0, 100.0, 103.0])
    first = Totals(lambda: next(clock))
    first.add(10, 2.0)
    saved = first.state_dict()
    later = Totals(lambda: next(clock))
    later.load_state_dict(saved)
    later.add(10, 2.0)
    assert later.state_dict() == {"tokens": 20, "flops": 4.0, "seconds": 8.0}


def test_every_line_has_the_totals_of_its_step_also_after_a_resume(tmp_path):
    for stop in (3, regression.STEPS):
        regression.run(tmp_path, optim__steps=stop)
    lines = metrics_file.read_lines(tmp_path / "metrics.jsonl")
    assert [line["tokens"] for line in lines] == [line["step"] * regression.B for line in lines]
    assert all(line["flops"] == line["step"] for line in lines)
    seconds = [line["seconds"] for line in lines]
    assert seconds == sorted(seconds)
