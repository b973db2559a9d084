"""A service that takes the numbers of runs, in the place of wandb and of mlflow."""

import sys
import types

import pytest
from ml_collections import ConfigDict

from pretrain.training.reports.metrics_file import Writer
from pretrain.training.reports.trackers import open_trackers

CONFIG = {"optim": {"lr": 0.1}}


def open_writer(workdir, step, *names):
    """Opens the metrics of a run with these trackers, as the loop does."""
    return Writer(workdir, step, open_trackers(names, workdir, step + 1, ConfigDict(CONFIG)))


class Service(types.ModuleType):
    """Stands in for wandb and for mlflow, and notes how it was called."""

    def __init__(self):
        super().__init__("service")
        self.begun, self.logged, self.ended, self.ids = [], [], 0, iter(["first", "second"])
        self.util = types.SimpleNamespace(generate_id=lambda: next(self.ids))

    def init(self, **options):
        self.begun.append(options["id"])
        assert (options["resume"], options["config"]) == ("allow", CONFIG)
        return self

    def define_metric(self, name, step_metric=None):
        assert step_metric in (None, "step")

    def log(self, values):
        self.logged.append(values)

    def finish(self):
        self.ended += 1

    def set_experiment(self, name):
        assert name == "quartet"

    def start_run(self, run_id="", run_name=""):
        self.begun.append(run_id or next(self.ids))
        return types.SimpleNamespace(info=types.SimpleNamespace(run_id=self.begun[-1]))

    def log_params(self, values):
        assert len(self.begun) == 1
        assert values == {"optim.lr": "0.1"}

    def log_metrics(self, values, step):
        self.logged.append({"step": step, **values})

    end_run = finish


@pytest.fixture
def service(monkeypatch):
    service = Service()
    for name in ("wandb", "mlflow"):
        monkeypatch.setitem(sys.modules, name, service)
    return service


def check_two_lives(service, name, workdir):
    """Writes a step in each of two lives: both are one run of the service."""
    for step in (1, 2):
        writer = open_writer(workdir, step - 1, name)
        writer.write(step, loss=step / 2, skipped=float("nan"), event="none")
        writer.close()
    assert service.begun == ["first", "first"]
    assert service.logged == [{"step": 1, "loss": 0.5}, {"step": 2, "loss": 1.0}]
    assert service.ended == 2
