"""Runs take turns, and each has its scores, its latency and its speed in a line."""

from types import SimpleNamespace

from benchmarks import predict


class Clerk:
    """Predicts nothing, and counts the examples of each call."""

    data = SimpleNamespace(scores=lambda examples, outputs: {"accuracy": len(examples) / 8})

    def __init__(self):
        self.calls = list[int]()

    def predict_lines(self, examples):
        self.calls.append(len(examples))
        return [{}] * len(examples), examples[:4], {}


def test_every_run_predicts_each_query_and_all_examples_in_every_round():
    runs = [predict.Contender(name, Clerk(), Clerk()) for name in ("a", "b")]
    reports = predict.measure(runs, [{}] * 6, queries=3, rounds=2)
    for run, report in zip(runs, reports, strict=True):
        assert run.alone.calls == [1] * 4  # the first compiles
        assert run.together.calls == [6] * 3
        assert (len(report.seconds), len(report.rates)) == (3, 2)
        assert report.scores == {"accuracy": 0.5}


def test_speed_is_told_beside_the_first_run_s():
    reports = [
        predict.Report({"accuracy": 0.5}, [0.001] * 99 + [0.1], [100.0, 300.0]),
        predict.Report({}, [0.002] * 100, [400.0]),
    ]
    _, first, second = predict.format_reports(["runs/a", "b"], reports)
    assert first.split() == ["runs/a", "1.00", "1.99", "200", "1.00", "accuracy", "0.5000"]
    assert second.split() == ["b", "2.00", "2.00", "400", "2.00"]
