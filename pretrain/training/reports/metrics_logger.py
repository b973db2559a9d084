"""The hook that writes the metrics of training, and the monitor that adds them up."""

from typing import Any

from pretrain.data.batches import Batch, describe_batch
from pretrain.distributed import peak_flops
from pretrain.training.hooks import Hook, NotFiniteError, Report
from pretrain.training.reports.goodput import Goodput
from pretrain.training.reports.meter import Meter, measure_length
from pretrain.training.reports.metrics_file import Writer
from pretrain.training.reports.progress_line import Progress
from pretrain.training.reports.totals import Totals
from pretrain.training.train_state import State, StepMetrics


class StepMonitor:
    """Adds up the metrics of every step, and tells of those that were skipped.

    Attributes:
        meter: sums and times since they were last written down.
    """

    def __init__(self, writer: Writer, progress: Progress, flops, max_skips: int, totals: Totals):
        """
        Args:
            flops: (B, L) -> floating-point operations of a step on such a batch.
            max_skips: skipped steps in a row after which the run ends.
            totals: of the run, to which each step adds.
        """
        self.writer, self.progress = writer, progress
        self.flops, self.max_skips = flops, max_skips
        self.meter, self.totals = Meter(), totals
        self.step, self.report = 0, Report()
        self.shapes = set[str]()  # that a step was compiled for

    def observe(self, step: int, data, metrics: StepMetrics, batch: Batch) -> Report:
        """Takes in step number `step`, on a batch of the layout `data`, and starts its report."""
        shape, L = describe_batch(batch), measure_length(batch, data.L)
        self.meter.compiling |= shape not in self.shapes
        self.shapes.add(shape)
        self.step, self.report = step, Report(metrics)
        # A step is looked at when the next is on its way, so that the device never waits for the
        # host.
        work = data.B * L, self.flops(data.B, L)
        self.totals.add(*work)
        done = self.meter.add(metrics, *work)
        self._check(step - 1, done)
        return self.report

    def catch_up(self) -> None:
        self._check(self.step, self.meter.add(None))

    def _check(self, step: int, done: StepMetrics | None) -> None:
        if done is None or not (skips := int(done.consecutive_skips)):
            return
        norm = float(done.grad_norm)
        text = f"step {step} skipped: loss or gradient not finite (gradient norm {norm})"
        self.progress.say(f"{text}; its batch is number {step - 1} of the stream")
        self.writer.write(step, event="skipped", batch=step - 1, consecutive_skips=skips)
        if skips >= self.max_skips:
            why = (
                f"{skips} steps in a row, up to step {step}, were not finite: the run stops. "
                "The weights saved are those before them; try a lower optim.lr or optim.clip"
            )
            self.report.fail(NotFiniteError(why))


class MetricsLogger(Hook):
    """Writes the metrics of the latest steps, with their rates, and shows them."""

    name = "logging"

    def __init__(self, every: int, monitor: StepMonitor, rate, goodput: Goodput):
        self.every, self.monitor, self.rate, self.goodput = every, monitor, rate, goodput
        self.peak = peak_flops.find_peak()

    def __call__(self, step: int, state: State, report: Report) -> None:
        self.monitor.catch_up()
        if report.error:
            return
        self.goodput.add(self.monitor.meter.busy)
        values, rates = self.monitor.meter.read()
        rates["goodput"] = self.goodput.compute_share()
        flops_per_s = rates.pop("flops_per_s")
        if self.peak:
            rates["utilisation"] = flops_per_s / self.peak
        values |= {"lr": self.learning_rate(step, state), **rates}
        self.monitor.writer.write(step, **values)
        self.monitor.progress.show(step, values)

    def learning_rate(self, step: int, state: State) -> float:
        """Returns the learning rate of step number `step`; skipped steps do not count."""
        # The optimiser counts its own updates, from 0.
        rate = float(self.rate(step - 1 - int(state.skipped)))
        return rate * float((state.scalars or {}).get("lr_scale", 1.0))

    def state_dict(self) -> dict[str, Any]:
        self.monitor.catch_up()
        # A checkpoint counts these lines as written, and a resumed run does not repeat them.
        self.monitor.writer.flush()
        meter = self.monitor.meter
        return {
            "sums": meter.state_dict(),
            "time": self.goodput.state_dict(meter.busy),
            "totals": self.monitor.totals.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any], report: Report) -> None:
        self.monitor.meter.load_state_dict(state.get("sums", {}))
        self.goodput.load_state_dict(state.get("time", {}))
        self.monitor.totals.load_state_dict(state.get("totals", {}))
