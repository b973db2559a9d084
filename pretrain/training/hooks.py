"""What happens between steps: writing down, evaluating, saving - each in its own period."""

import contextlib
import dataclasses
import logging
import math
from collections.abc import Iterator
from typing import Any

from pretrain.distributed import peak_flops
from pretrain.runtime.errors import UserError
from pretrain.training import metrics
from pretrain.training.logging import Meter, to_json


class NotFiniteError(UserError):
    """Too many steps in a row whose loss or gradient was not finite."""


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """What an evaluation has said.

    Attributes:
        step: after which it was.
        values: a number by name, as "dev/accuracy"; None: not finite.
        since: how many evaluations came after it.
    """

    step: int
    values: dict[str, float | None]
    since: int = 0


@contextlib.contextmanager
def refused() -> Iterator[None]:
    """Around a save: weights that are not finite end the run with a line."""
    try:
        yield
    except FloatingPointError as error:
        raise NotFiniteError(f"{error}: the weights overflowed; try a lower optim.lr") from error


class Log:
    """Adds up what steps report; now and then writes it to the workdir and shows it."""

    def __init__(self, writer, progress, rate, goodput, *, flops, patience: int):
        """`flops(B, L)`: floating-point operations of a step on such a batch."""
        self.writer, self.progress, self.rate = writer, progress, rate
        self.goodput = goodput
        self.flops, self.peak, self.patience = flops, peak_flops.peak(), patience
        self.meter = Meter()
        self.data: Any = None  # the layout in force

    def next(self, batches):
        """The layout in force and its next batch, the wait for which is measured."""
        with self.meter.waiting():
            data, batch = next(batches)
        self.meter.compiling |= data is not self.data
        self.data = data
        return data, batch

    def step(self, step: int, sums) -> None:
        """Takes in step number `step`, and looks at the one before, which is done by now."""
        size = self.data.B, self.data.L
        self._look(step - 1, self.meter.add(sums, math.prod(size), self.flops(*size)))

    def _look(self, step: int, done) -> None:
        if done is None or not (skips := int(done.consecutive_skips)):
            return
        norm = float(done.grad_norm)
        text = f"step {step} skipped: loss or gradient not finite (gradient norm {norm})"
        self.progress.say(f"{text}; its batch is number {step - 1} of the stream")
        self.writer.write(step, event="skipped", batch=step - 1, consecutive_skips=skips)
        if skips >= self.patience:
            raise NotFiniteError(
                f"{skips} steps in a row, up to step {step}, were not finite: the run stops. "
                "The weights saved are those before them; try a lower optim.lr or optim.clip"
            )

    def catch_up(self, step: int) -> None:
        """Waits for step number `step`, the latest, and looks at it."""
        self._look(step, self.meter.add(None))

    def __call__(self, step: int, state) -> None:
        self.catch_up(step)
        self.goodput.add(self.meter.busy)
        values, rates = self.meter.read()
        rates["goodput"] = self.goodput.share()
        flops_per_s = rates.pop("flops_per_s")
        if self.peak:
            rates["utilisation"] = flops_per_s / self.peak
        values |= {"lr": float(self.rate(step - 1 - int(state.skipped))), **rates}
        self.writer.write(step, **values)
        self.progress.show(step, values)

    def begun(self) -> dict[str, Any]:
        """What `resume` wants to know; what was written so far is on disk before it is told."""
        self.writer.flush()
        return {"sums": self.meter.begun(), "time": self.goodput.begun(self.meter.busy)}

    def resume(self, begun) -> None:
        self.meter.resume(begun.get("sums", {}))
        self.goodput.resume(begun.get("time", {}))


class Evaluate:
    """Reads the held-out streams from their beginnings; a request to stop ends it early.

    Attributes:
        owed: it was ended so, and is to be done again by whoever resumes.
        last: the last that was not; None: there was none.
    """

    def __init__(self, steps, evals, stop, writer, progress, batches: int, score=None, best=None):
        """
        Args:
            batches: of each stream; 0: all.
            score: (name of the stream, outputs of `Steps.predict`) -> {metric: value}, if the
                objective is one whose worth is told by all of its predictions together.
            best: a `Best`, told all values.
        """
        self.steps, self.evals, self.stop = steps, evals, stop
        self.writer, self.progress, self.batches = writer, progress, batches or None
        self.score, self.best = score, best
        self.owed = False
        self.last: Evaluation | None = None

    def __call__(self, step: int, state) -> None:
        self.owed = True
        params = state.params if state.average is None else state.average
        every: dict[str, float] = {}
        for name, data in self.evals.items():
            values = self._values(name, params, data)
            if values is None:
                return
            every |= {f"{name}/{k}": v for k, v in values.items()}
            text = "  ".join(f"{k} {v:.4f}" for k, v in values.items())
            self.progress.say(f"step {step}  {name}:  {text}")
        self.writer.write(step, **every)
        self.owed = False
        if every:
            self.last = Evaluation(step, {name: to_json(value) for name, value in every.items()})
        if self.best:
            self.best(step, params, every)

    def _values(self, name: str, params, data) -> dict[str, float] | None:
        """What one stream says; None if told to stop."""
        total = self.steps.evaluate(params, data, self.stop, self.batches)
        if total is None or not self.score:
            return total and metrics.means(total)
        outputs = self.steps.predict(params, data, self.stop)
        return outputs and {**metrics.means(total), **self.score(name, outputs)}


class Best:
    """The parameters that did best in one of the held-out numbers are kept, whatever comes later.

    They are on disk before a checkpoint of the run names them, and stay as long as one does.

    Attributes:
        value: the best so far; None: nothing yet.
        since: evaluations that have not bettered it.
        step: of the best so far.
        values: what the best evaluation said, by name; {}: nothing yet.
    """

    def __init__(self, saved, run, metric: str, patience: int):
        """
        Args:
            saved: `Checkpoints` of their own, which keep all.
            run: the `Checkpoints` of the run.
            metric: "dev/accuracy", or "-dev/loss" of what is to be low.
            patience: evaluations in a row without a better one after which training ends; 0: none.
        """
        self.saved, self.run, self.metric, self.patience = saved, run, metric, patience
        self.value: float | None = None
        self.since, self.step = 0, -1
        self.values: dict[str, float | None] = {}

    def __call__(self, step: int, params, values: dict[str, float]) -> None:
        name = self.metric.removeprefix("-")
        if name not in values:
            raise UserError(f"train.best={self.metric!r}: there are {', '.join(values)}")
        value = -values[name] if self.metric.startswith("-") else values[name]
        self.since += 1
        if value > (-math.inf if self.value is None else self.value):  # which NaN never is
            self.saved.keep_only(self._named(self.step) | {self.step})
            with refused():
                self.saved.save(step, {"params": params}, {"metric": name, "value": values[name]})
            self.value, self.since, self.step = value, 0, step
            self.values = {name: to_json(each) for name, each in values.items()}

    def _named(self, step: int) -> set[int]:
        """What checkpoints of the run name as the best of their time; `step` if they name none."""
        self.run.wait()
        return {position.get("best", {}).get("step", step) for position in self.run.positions()}

    @property
    def evaluation(self) -> Evaluation | None:
        """The best so far; None: nothing yet."""
        return Evaluation(self.step, self.values, self.since) if self.values else None

    @property
    def enough(self) -> bool:
        """Whether to train on is no use."""
        return bool(self.patience) and self.since >= self.patience

    def begun(self) -> dict[str, Any]:
        """What `resume` wants to know."""
        return {
            "value": self.value,
            "since": self.since,
            "step": self.step,
            "values": self.values,
        }

    def resume(self, begun, params) -> bool:
        """Goes on from the best that was begun; what came after it is to come again.

        Returns:
            whether that best is there; if not, it is looked for anew, from `params` on.
        """
        latest = self.saved.manager.latest_step()
        value, step = begun.get("value"), begun.get("step", -1 if latest is None else latest)
        self.saved.keep_only(self._named(step))
        if value is not None and not self.saved.has(step, {"params": params}):
            logging.warning("the best weights, of step %d, are lost: these count anew", step)
            return False
        self.value, self.since, self.step = value, begun.get("since", 0), step
        self.values = begun.get("values", {})
        return True


class Save:
    """Checkpoints of the state, of the position in the data and what it depends on, and of what
    the other hooks have begun and not finished."""

    def __init__(self, saved, train, log: Log, evaluate: Evaluate):
        self.saved, self.fingerprint, self.log, self.evaluate = (
            saved,
            train.fingerprint(),
            log,
            evaluate,
        )

    def __call__(self, step: int, state) -> None:
        self.log.catch_up(step)
        position = {"step": step, "data": self.fingerprint, "owed": self.evaluate.owed}
        position |= self.log.begun()
        if self.evaluate.last:
            position["evaluation"] = dataclasses.asdict(self.evaluate.last)
        if self.evaluate.best:
            self.evaluate.best.saved.wait()  # it is there before the checkpoint that names it
            position["best"] = self.evaluate.best.begun()
        with refused():
            self.saved.save(step, state, position)

    def check(self) -> None:
        """UserError if what was saved in the background could not be written."""
        self.saved.check()
        if self.evaluate.best:
            self.evaluate.best.saved.check()

    def resume(self, position) -> None:
        """Tells the other hooks what they had begun; `Best` is told before there is a writer."""
        self.evaluate.owed = position.get("owed", False)
        if last := position.get("evaluation"):
            self.evaluate.last = Evaluation(**last)
        self.log.resume(position)
