"""Hooks: the work between steps, each in its own period.

A hook reads the state and a `Report`, writes into the report what it asks of the run, and knows no
other hook.  Its `state_dict` is part of every checkpoint.
"""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Protocol

from pretrain.runtime.errors import UserError
from pretrain.training import metrics
from pretrain.training.reports.metrics_file import Writer, to_json
from pretrain.training.reports.progress_line import Progress
from pretrain.training.train_state import State, StepMetrics, replace_scalars


class NotFiniteError(UserError):
    """Too many steps in a row whose loss or gradient was not finite."""


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """Numbers of one evaluation.

    Attributes:
        step: after which it was.
        values: a number by name, as "dev/accuracy"; None: not finite.
        since: how many evaluations came after it.
    """

    step: int
    values: dict[str, float | None]
    since: int = 0


@dataclasses.dataclass
class Report:
    """Carries the news of one step from hook to hook, and their requests to the loop.

    Attributes:
        metrics: of the step, on the device still; None: no step was taken.
        held_out: numbers of an evaluation at this step, as "dev/loss"; None: there was none.
        scalars: new values of the state's scalars, by name; see `Hook.scalars`.
        stop: ends the run after this step, which is saved.
        is_finished: the run needs no further step.
        is_interrupted: a request to terminate broke off the evaluation.
        error: raised as soon as the step is saved.
        pending: names of the hooks that are to be called again by whoever resumes.
        finished_by: names of the hooks that asked the run to finish; a checkpoint keeps them.
    """

    metrics: StepMetrics | None = None
    held_out: dict[str, float] | None = None
    scalars: dict[str, float] = dataclasses.field(default_factory=dict)
    stop: bool = False
    is_finished: bool = False
    is_interrupted: bool = False
    error: UserError | None = None
    pending: list[str] = dataclasses.field(default_factory=list)
    finished_by: list[str] = dataclasses.field(default_factory=list)

    def finish(self) -> None:
        """Asks the run to end here, as one that is done; it stays done when it is resumed."""
        self.stop = self.is_finished = True

    def fail(self, error: UserError) -> None:
        """Asks the run to save and then to end with an error; the first error counts."""
        self.stop, self.error = True, self.error or error

    def interrupt(self) -> None:
        """Breaks off the work of this step, which is repeated on resume."""
        self.stop = self.is_interrupted = True


class Hook(Protocol):
    """Does work between steps.  A subclass inherits a hook without state.

    Attributes:
        name: of its state in a checkpoint, and of its work in the signs of life.
        every: steps between two calls; 0: none but that at the last step.
        scalars: initial values of the state's scalars that it changes, of `train_state.SCALARS`.
    """

    name: str
    every: int = 1
    scalars: Mapping[str, float] = {}

    def __call__(self, step: int, state: State, report: Report) -> None:
        """Does the work after step number `step`, which led to `state`.

        An exception ends the run at once; `report.fail` lets it save first.
        """

    def state_dict(self) -> dict[str, Any]:
        """Returns what a resumed run needs, as JSON.

        All that it counts as done is on disk when it returns.
        """
        return {}

    def load_state_dict(self, state: dict[str, Any], report: Report) -> None:
        """Goes on from a `state_dict`; {}: of a fresh run, or of one without this hook.

        In the report of the restored step it may ask to stop, or add its name to those pending.
        A run that it has finished stays so, unless it removes its name from `finished_by`.
        """
        return None


def select_due_hooks(hooks: Sequence[Hook], step: int, last: int) -> list[Hook]:
    # All at the last step, where their periods need not end.
    return [x for x in hooks if step == last or (x.every and step % x.every == 0)]


def call_hooks(hooks: Sequence[Hook], step: int, state: State, report: Report, watch) -> State:
    """Calls hooks in order; after an error none is, after an interruption they are pending.

    Args:
        watch: (kind of work, step) -> a context around the work, see `watchdog.Watch`.

    Returns:
        The state with the scalars that the hooks changed.
    """
    for number, hook in enumerate(hooks):
        if report.error:
            break
        was_finished = report.is_finished
        with watch(hook.name, step):
            hook(step, state, report)
        if report.is_finished and not was_finished:
            report.finished_by.append(hook.name)
        if report.is_interrupted:
            report.pending = [x.name for x in hooks[number:]]
            break
        # At once: a later hook saves the state, and a resumed run must find the scalars in it.
        state = replace_scalars(state, report.scalars)
    return state


def load_hooks(hooks: Sequence[Hook], position: Mapping[str, Any]) -> Report:
    """Restores hooks from the position of a checkpoint, {} without one.

    Returns:
        The report of the restored step.
    """
    # A hook that the recipe no longer has does not end the run, either.
    finished_by = [x.name for x in hooks if x.name in position.get("finished_by", ())]
    report = Report(pending=list(position.get("pending", ())), finished_by=finished_by)
    for hook in hooks:
        hook.load_state_dict(find_saved_state(position, hook.name), report)
    # All hooks first: one of them may take its name back.
    if report.finished_by:
        report.finish()
    return report


def find_saved_state(position: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Returns the state of a hook in the position of a checkpoint; {}: there is none."""
    return position.get("hooks", {}).get(name, {})


@contextlib.contextmanager
def refuse_overflow() -> Iterator[None]:
    try:
        yield
    except FloatingPointError as error:
        raise NotFiniteError(f"{error}: the weights overflowed; try a lower optim.lr") from error


# --- the hooks of every run ------------------------------------------------------------------


class Evaluate(Hook):
    """Reads the held-out streams from their beginnings; a request to stop breaks it off.

    Attributes:
        last: the last evaluation that came to its end; None: there was none.
    """

    name = "evaluating"

    def __init__(
        self,
        every: int,
        steps,
        evals: Mapping[str, Any],
        stop: Callable[[], bool],
        writer: Writer,
        progress: Progress,
        batches: int = 0,
        score: Callable[[str, dict[str, Any]], dict[str, float]] | None = None,
        means: Mapping[str, Sequence[str]] = MappingProxyType({}),
    ):
        """
        Args:
            batches: of each stream; 0: all.
            score: (name of the stream, outputs of `Steps.predict`) -> {metric: value}, if the
                objective is one whose worth is told by all of its predictions together.
            means: see `TrainConfig`.
        """
        self.every, self.steps, self.evals, self.stop = every, steps, evals, stop
        self.writer, self.progress = writer, progress
        self.batches, self.score, self.means = batches or None, score, means
        self.last: Evaluation | None = None

    def __call__(self, step: int, state: State, report: Report) -> None:
        # Written after the last stream: an evaluation broken off leaves no half of a line.
        held_out: dict[str, float] = {}
        for name, data in self.evals.items():
            values = self._evaluate(name, state.evaluated_params, data)
            # Half of an evaluation is none: whoever resumes repeats it.
            if values is None:
                return report.interrupt()
            held_out |= {f"{name}/{k}": v for k, v in values.items()}
            text = "  ".join(f"{k} {v:.4f}" for k, v in values.items())
            self.progress.say(f"step {step}  {name}:  {text}")
        held_out |= self._average(held_out)
        self.writer.write(step, **held_out)
        report.held_out = held_out
        if held_out:
            self.last = Evaluation(step, {name: to_json(x) for name, x in held_out.items()})

    def _average(self, values: Mapping[str, float]) -> dict[str, float]:
        if unknown := {name for names in self.means.values() for name in names} - values.keys():
            raise UserError(f"train.means: {min(unknown)!r} is none of {', '.join(values)}")
        return {
            f"mean/{mean}": sum(values[name] for name in names) / len(names)
            for mean, names in self.means.items()
        }

    def _evaluate(self, name: str, params, data) -> dict[str, float] | None:
        total = self.steps.evaluate(params, data, self.stop, self.batches)
        # None: a request to stop broke it off.
        if total is None or not self.score:
            return total and metrics.compute_means(total)
        outputs = self.steps.predict(params, data, self.stop)
        return outputs and {**metrics.compute_means(total), **self.score(name, outputs)}

    def state_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self.last) if self.last else {}

    def load_state_dict(self, state: dict[str, Any], report: Report) -> None:
        self.last = Evaluation(**state) if state else None


class CheckSaves(Hook):
    """Ends the run if what was saved in the background could not be written."""

    name = "checking the saves"

    def __init__(self, checkpoints: Sequence):
        self.checkpoints = checkpoints  # all of the run: the best are saved apart

    def __call__(self, step: int, state: State, report: Report) -> None:
        for saved in self.checkpoints:
            saved.check()


class SaveCheckpoint(Hook):
    """Saves the train state, the position in the data, and the states of hooks."""

    name = "saving"

    def __init__(self, every: int, saved, fingerprint, hooks: Sequence[Hook]):
        """
        Args:
            saved: the `Checkpoints` of the run.
            fingerprint: of the data of training.
            hooks: those whose states are saved.
        """
        self.every, self.saved, self.fingerprint, self.hooks = every, saved, fingerprint, hooks

    def __call__(self, step: int, state: State, report: Report) -> None:
        # First: `state_dict` puts on disk what the checkpoint will count as done.
        states = {hook.name: hook.state_dict() for hook in self.hooks}
        position = {
            "step": step,
            "data": self.fingerprint,
            "pending": report.pending,
            "finished_by": report.finished_by,
            "hooks": {name: values for name, values in states.items() if values},
        }
        with refuse_overflow():
            self.saved.save(step, state, position)
