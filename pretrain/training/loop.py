"""The one training loop.  Pretraining and fine-tuning are two ways of calling it."""

import contextlib
import dataclasses
import pathlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from modules import plugins
from pretrain.checkpoint.manager import Checkpoints
from pretrain.data.batches.loader import phases, training
from pretrain.distributed import processes
from pretrain.distributed.sharding import Layout, make_mesh
from pretrain.distributed.watchdog import Watch
from pretrain.runtime.errors import UserError, call_section, name_section
from pretrain.runtime.run_config import diff_configs
from pretrain.training import hooks, optimizer
from pretrain.training.compiled_steps import Steps
from pretrain.training.goodput import Goodput
from pretrain.training.logging import Progress, Writer
from pretrain.training.profiler import Profile
from pretrain.training.train_state import State


@dataclasses.dataclass(frozen=True)
class Plan:
    """The recipe's `train` section: how a run goes about its steps.

    Attributes:
        parts: microbatches whose gradients are added up before an update.
        average: rate of the moving average of the parameters, which evaluation then uses; 0: none.
        patience: steps in a row that may be skipped as not finite before the run gives up.
        log_every, eval_every, save_every: periods in steps, 0: none; the last step does all three.
        eval_batches: batches of each held-out stream read per evaluation; 0: all.
        keep, keep_every: the newest checkpoints kept, and the period of those kept for good.
        best: a held-out number, as "dev/accuracy" or "-dev/loss", by which the best parameters are
            kept in `workdir/best`, too; "": none.
        stop_after: evaluations in a row without a better one that end the run; 0: none do.
    """

    parts: int = 1
    average: float = 0.0
    patience: int = 10
    log_every: int = 100
    eval_every: int = 1000
    eval_batches: int = 0
    save_every: int = 1000
    keep: int = 2
    keep_every: int = 0
    best: str = ""
    stop_after: int = 0


class Result(NamedTuple):
    """What a run has come to.

    Attributes:
        state: the final state.
        finished: False if the run was told to terminate before its end.
        best: the evaluation that counts, the best by `train.best` where the recipe has one, or
            else the last; None: nothing has been evaluated.
    """

    state: State
    finished: bool
    best: hooks.Evaluation | None


def run(
    config,
    workdir,
    objective,
    train,
    evals: Mapping[str, Any],
    prepare: Callable[[Any], Any] = lambda params: params,
    accept_changes: bool = False,
    score: Callable[[str, dict[str, Any]], dict[str, float]] | None = None,
    keep: Callable[[], None] = lambda: None,
) -> Result:
    """Trains `objective` on `train` until config.optim.steps, evaluating and saving as it goes.

    A run that finds checkpoints in `workdir` continues from the newest that verifies, bit for
    bit as if it had never stopped.  Told to terminate, it finishes its step, saves and returns.

    Args:
        config: the recipe; reads .seed, .mesh, .optim, .train and .profile.
        workdir: the run's folder, locked by the caller.
        objective: a Linen module, see `pretrain.objectives`.
        train: a layout of `pretrain.data`, or two in turn, `pretrain.data.batches.phases.Phases`.
        evals: held-out layouts by name, each read from its beginning at every evaluation.
        prepare: applied to fresh parameters, e.g. to load a pretrained backbone.
        accept_changes: continue although the data are others than the checkpoint's.
        score: (held-out name, outputs of the objective's `predict` for all its rows) -> numbers.
        keep: leaves in `workdir` what else a run keeps; called once nothing can be refused.

    Returns:
        What the run has come to.  The step of its state is below config.optim.steps if the run was
        told to terminate, or if train.stop_after ended it for want of a better evaluation.

    Raises:
        UserError: the checkpoint belongs to other data; NotFiniteError: `patience` ran out.
    """
    with name_section("train"):
        plan = plugins.construct(Plan, **config.train)
    with name_section("optim"):
        tx, rate = optimizer.make(**config.optim)
    layout = Layout(call_section("mesh", make_mesh, config.mesh))
    last, stop = config.optim.steps, processes.Stop()
    profile = Profile(config.get("profile", ""), workdir, last)
    for data in evals.values():
        layout.check_rows(data.B)  # refused now rather than at the first evaluation
    steps = Steps(
        objective,
        tx,
        layout,
        phases(train),
        seed=config.seed,
        parts=plan.parts,
        average=plan.average,
    )
    with contextlib.ExitStack() as stack:
        stack.enter_context(contextlib.closing(profile))
        saved = Checkpoints(workdir, keep=plan.keep, keep_every=plan.keep_every or None)
        stack.enter_context(contextlib.closing(saved))
        state, position = _begin(steps, saved, train, prepare, accept_changes)
        keep()
        watch = stack.enter_context(contextlib.closing(Watch(workdir)))
        best = None
        if plan.best:
            kept = Checkpoints(pathlib.Path(workdir) / "best", keep=None)
            stack.enter_context(contextlib.closing(kept))
            best = hooks.Best(kept, saved, plan.best, plan.stop_after)
            if not best.resume(position.get("best", {}), steps.like.params):
                position["owed"] = True
        progress = Progress(last)
        writer = Writer(workdir, int(state.step), owed=position.get("owed", False))
        stack.enter_context(contextlib.closing(writer))
        log = hooks.Log(
            writer,
            progress,
            rate,
            Goodput(watch.began),
            flops=objective.flops,
            patience=plan.patience,
        )
        evaluate = hooks.Evaluate(
            steps, evals, stop, writer, progress, plan.eval_batches, score, best
        )
        save = hooks.Save(saved, train, log, evaluate)
        periods = (
            (plan.log_every, "logging", log),
            (plan.eval_every, "evaluating", evaluate),
            (plan.save_every, "saving", save),
        )

        save.resume(position)
        begin = f"continuing from step {state.step}" if position else "beginning at step 0"
        progress.say(f"{begin} in {workdir}; the first step compiles, which can take a minute")
        if evaluate.owed:
            with watch("evaluating", int(state.step)):
                evaluate(int(state.step), state)
            if evaluate.owed:  # and broken off again
                return Result(state, False, _counting(evaluate, best))
        if best and best.enough:
            return Result(state, True, best.evaluation)
        batches = training(train, int(state.step), steps.rows)
        for step in range(int(state.step) + 1, last + 1):
            with watch("waiting for a batch", step):
                data, batch = log.next(batches)
            try:
                with watch(f"training on {data.B} x {data.L} tokens", step), profile(step):
                    state, sums = steps.train(state, layout.put(batch, data.B))
                    log.step(step, sums)
                    save.check()
                for every, doing, hook in periods:
                    if (every and step % every == 0) or step == last:
                        with watch(doing, step):
                            hook(step, state)
            except hooks.NotFiniteError:
                save(step, state)
                raise
            if enough := bool(best and best.enough):
                progress.say(f"step {step}: {plan.stop_after} evaluations did not better the best")
            if enough or stop():
                save(step, state)
                break
    finished = int(state.step) == last or bool(best and best.enough)
    return Result(state, finished and not evaluate.owed, _counting(evaluate, best))


def _counting(evaluate: hooks.Evaluate, best: hooks.Best | None) -> hooks.Evaluation | None:
    """Returns the best evaluation, or the last where there is no best."""
    return (best and best.evaluation) or evaluate.last


def _begin(steps: Steps, saved: Checkpoints, train, prepare, accept_changes: bool):
    """The newest checkpoint that verifies and its position; a fresh state and {} without one."""
    found = saved.restore(steps.like)
    if found is None:
        state = steps.init()
        return state.replace(params=prepare(state.params)), {}
    state, position, _ = found
    changed = diff_configs(position["data"], train.fingerprint())
    if changed and not accept_changes:
        raise UserError(
            "this run was trained on other data; --accept_changes continues on these:"
            + "".join(f"\n  {line}" for line in changed)
        )
    return state, position
