"""The one training loop.  Pretraining and fine-tuning are two ways of calling it."""

import contextlib
import pathlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from modules import plugins
from pretrain.checkpoint.manager import Checkpoints
from pretrain.data.batches import describe_batch
from pretrain.data.batches.loader import list_phases, read_training
from pretrain.distributed import processes
from pretrain.distributed.sharding import Layout, make_mesh
from pretrain.distributed.watchdog import Watch
from pretrain.runtime.errors import UserError
from pretrain.runtime.run_config import diff_configs
from pretrain.runtime.sections import call_section, name_section
from pretrain.training import optimizer
from pretrain.training.compiled_steps import Steps
from pretrain.training.gradient_norms import choose_norms
from pretrain.training.hooks import (
    CheckSaves,
    Evaluate,
    Evaluation,
    Hook,
    Report,
    SaveCheckpoint,
    call_hooks,
    load_hooks,
    select_due_hooks,
)
from pretrain.training.keep_best import KeepBest
from pretrain.training.profiler import Profile
from pretrain.training.reports.goodput import Goodput
from pretrain.training.reports.meter import Meter
from pretrain.training.reports.metrics_file import Writer
from pretrain.training.reports.metrics_logger import MetricsLogger, StepMonitor
from pretrain.training.reports.opening import describe_run
from pretrain.training.reports.progress_line import Progress
from pretrain.training.reports.totals import Totals
from pretrain.training.reports.trackers import open_trackers
from pretrain.training.schedules import Schedule
from pretrain.training.train_config import TrainConfig
from pretrain.training.train_state import State


class Result(NamedTuple):
    """Outcome of a run.

    Attributes:
        state: the final state.
        finished: False if the run was told to terminate before its end.
        best: the evaluation that counts, the best by `train.best` where the recipe has one, or
            else the last; None: nothing has been evaluated.
    """

    state: State
    finished: bool
    best: Evaluation | None


def run(
    config,
    workdir,
    objective,
    train,
    evals: Mapping[str, Any],
    prepare: Callable[[State], State] = lambda state: state,
    accept_changes: bool = False,
    score: Callable[[str, dict[str, Any]], dict[str, float]] | None = None,
    keep: Callable[[], None] = lambda: None,
    extra_hooks: Sequence[Hook] = (),
    evaluate_first: bool = False,
) -> Result:
    """Trains `objective` on `train` until config.optim.steps, evaluating and saving as it goes.

    Checkpoints in `workdir` are continued from the newest that verifies, bit for bit as if it had
    never stopped.  Told to terminate, a run finishes its step, saves and returns.

    Args:
        config: the recipe; reads .seed, .mesh, .optim, .train and .profile.
        workdir: the run's folder, locked by the caller.
        objective: a Linen module, see `pretrain.objectives`.
        train: a batch layout, or two in turn, `pretrain.data.batches.phases.Phases`.
        evals: held-out layouts by name, each read from its beginning at every evaluation.
        prepare: applied to a new state, e.g. to load a pretrained backbone.
        accept_changes: continue although the data are others than the checkpoint's.
        score: (held-out name, outputs of the objective's `predict` for all its rows) -> numbers.
        keep: leaves in `workdir` what else a run keeps; called once nothing can be refused.
        extra_hooks: called after an evaluation and before a save, see `hooks.Hook`.
        evaluate_first: a new run evaluates before its first step, as step 0.

    Returns:
        The outcome, at an earlier step where train.stop_after, a hook or a signal ended the run.

    Raises:
        UserError: the checkpoint belongs to other data; NotFiniteError: `max_skips` was met.
    """
    with name_section("train"):
        plan = plugins.construct(TrainConfig, **config.train)
    last, stop = config.optim.steps, processes.Stop()
    steps, rate, profile = build_steps(config, plan, workdir, objective, train, evals, extra_hooks)
    with contextlib.ExitStack() as stack:
        stack.enter_context(contextlib.closing(profile))
        saved = open_checkpoints(stack, workdir, plan.keep, plan.keep_every or None)
        state, position = restore_or_init(steps, saved, train, prepare, accept_changes)
        keep()
        # After the checks: what is refused leaves no heartbeat or metrics behind.
        watch = stack.enter_context(contextlib.closing(Watch(workdir)))
        progress, totals = Progress(last), Totals()
        writer = open_writer(stack, workdir, int(state.step), plan.trackers, config, totals)
        monitor = StepMonitor(writer, progress, objective.flops, plan.max_skips, totals)
        logger = MetricsLogger(plan.log_every, monitor, rate, Goodput(watch.began))
        which = plan.eval_batches, score, plan.means
        evaluate = Evaluate(plan.eval_every, steps, evals, stop, writer, progress, *which)
        best = open_best(stack, workdir, plan, saved, steps.like.params, progress)
        stateful = [logger, evaluate, *best, *extra_hooks]
        # Last: it saves the states that all other hooks have reached at this step.
        save = SaveCheckpoint(plan.save_every, saved, train.fingerprint(), stateful)
        hooks = [CheckSaves([saved, *(x.saved for x in best)]), *stateful, save]

        report = load_hooks(stateful, position or {"pending": [evaluate.name] * evaluate_first})
        begin = train, last, workdir, int(state.step) if position else None
        progress.say(describe_run(steps.like, steps.layout, *begin, notes=rate.list_notes()))
        state = repeat_evaluation(evaluate, hooks, state, report, writer, watch)
        steps_left = range(int(state.step) + 1, 1 + (0 if report.stop else last))
        # A process reads the rows of its own devices.
        batches = read_training(train, int(state.step), lambda data: steps.layout.find_rows(data.B))
        for step, data, batch in read_batches(batches, steps_left, watch, monitor.meter):
            with watch(f"training on {describe_batch(batch)}", step), profile(step):
                state, metrics = steps.train(state, steps.layout.shard_batch(batch, data.B))
                report = monitor.observe(step, data, metrics, batch)
            state = call_hooks(select_due_hooks(hooks, step, last), step, state, report, watch)
            if report.stop or stop():
                save(step, state, report)  # off its period, so that nothing is lost
                break
        if report.error:
            raise report.error
    # An interrupted evaluation of the last step is still to be repeated.
    finished = (int(state.step) == last or report.is_finished) and not report.is_interrupted
    return Result(state, finished, next((x.evaluation for x in best), None) or evaluate.last)


def build_steps(
    config, plan: TrainConfig, workdir, objective, train, evals, extra_hooks: Sequence[Hook]
) -> tuple[Steps, Schedule, Profile]:
    """Builds what a run computes with, and refuses a recipe that cannot be run.

    Returns:
        (compiled functions, learning rate by step, tracer of the steps chosen).
    """
    with name_section("optim"):
        tx, rate = optimizer.make(**config.optim)
    layout = Layout(call_section("mesh", make_mesh, config.mesh))
    profile = Profile(config.get("profile", ""), workdir, config.optim.steps)
    for data in evals.values():
        layout.check_rows(data.B)  # refused now rather than at the first evaluation
    steps = Steps(
        objective,
        tx,
        layout,
        list_phases(train),
        seed=config.seed,
        parts=plan.parts,
        average=plan.average,
        norms=choose_norms(plan.norms, config.optim),
        scalars={name: x for hook in extra_hooks for name, x in hook.scalars.items()},
    )
    return steps, rate, profile


def open_checkpoints(
    stack: contextlib.ExitStack, workdir, keep: int | None, keep_every: int | None = None
) -> Checkpoints:
    """Opens the checkpoints of a folder until the stack is closed."""
    saved = Checkpoints(workdir, keep=keep, keep_every=keep_every)
    return stack.enter_context(contextlib.closing(saved))


def open_writer(stack, workdir, step: int, names, config, totals: Totals) -> Writer:
    """Opens the metrics of a run at this step, and the trackers of these names."""
    trackers = open_trackers(names, workdir, step + 1, config)
    return stack.enter_context(contextlib.closing(Writer(workdir, step, trackers, totals)))


def open_best(
    stack: contextlib.ExitStack,
    workdir,
    plan: TrainConfig,
    run: Checkpoints,
    like,
    progress: Progress,
) -> list[KeepBest]:
    """Opens `workdir/best` until the stack is closed; [] where the recipe keeps no best.

    Args:
        run: the checkpoints of the run.
        like: the parameters, as jax.ShapeDtypeStructs.
    """
    if not plan.best:
        return []
    saved = open_checkpoints(stack, pathlib.Path(workdir) / "best", None)
    return [KeepBest(plan.eval_every, saved, run, like, plan.best, plan.stop_after, progress)]


def restore_or_init(
    steps: Steps, saved: Checkpoints, train, prepare, accept_changes: bool
) -> tuple[State, dict[str, Any]]:
    """Returns the newest checkpoint that verifies and its position; without one, a new state, {}.

    Raises:
        UserError: the checkpoint belongs to other data.
    """
    # By shapes and shardings alone: beside a state of numbers there may be no room for it.
    restored = saved.restore(steps.like)
    if restored is None:
        state = steps.init()
        return prepare(state), {}
    state, position, _ = restored
    changed = diff_configs(position["data"], train.fingerprint())
    if changed and not accept_changes:
        raise UserError(
            "this run was trained on other data; --accept_changes continues on these:"
            + "".join(f"\n  {line}" for line in changed)
        )
    return state, position


def repeat_evaluation(
    evaluate: Evaluate, hooks: Sequence[Hook], state: State, report: Report, writer: Writer, watch
) -> State:
    """Evaluates the restored state anew if hooks are pending, and calls those.

    Returns:
        The state with the scalars that the hooks changed.
    """
    if not report.pending:
        return state
    # Its numbers come again, and are to stand in the file once.
    writer.forget_evaluation(int(state.step))
    # The evaluation always: the pending hooks read its numbers in the report.
    pending = [hook for hook in hooks if hook is evaluate or hook.name in report.pending]
    return call_hooks(pending, int(state.step), state, report, watch)


def read_batches(
    batches: Iterator[tuple[Any, Any]], steps: range, watch, meter: Meter
) -> Iterator[tuple[int, Any, Any]]:
    """Yields (step, its layout, its batch) for each of `steps`, and measures the wait for it."""
    for step in steps:
        with watch("waiting for a batch", step), meter.measure_wait():
            data, batch = next(batches)
        yield step, data, batch
