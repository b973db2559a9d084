"""Saves and restores the checkpoints of a run.

Orbax's manager writes, in the background; `pretrain.checkpoint.verification` reads and verifies.  A
checkpoint that does not verify is moved aside with a warning, and the one before it is used.
"""

import contextlib
import logging
import os
import pathlib
import shutil
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import jax
import orbax.checkpoint as ocp
from jax.experimental import multihost_utils
from orbax.checkpoint.checkpoint_managers import preservation_policy

from pretrain.checkpoint import checksums, named_leaves, verification
from pretrain.checkpoint.errors import DamagedError, make_write_error, report_failure
from pretrain.checkpoint.paths import find_folder, list_steps
from pretrain.runtime.files import PathLike, find_unused_path


class Failures(logging.Filter):
    """Collects the errors of background saves from Orbax's log.

    Attributes:
        errors: the last error by folder of checkpoints, of the folders that are open.
    """

    def __init__(self) -> None:
        super().__init__()
        self.errors: dict[pathlib.Path, BaseException | None] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Drops the tracebacks of Orbax: `Checkpoints.check` raises the error."""
        if not record.exc_info or "orbax" not in record.pathname:
            return True
        message = record.getMessage()
        # The log names the folder in its text alone.
        self.errors |= {x: record.exc_info[1] for x in list(self.errors) if str(x) in message}
        return False


_failures = Failures()
logging.getLogger("absl").addFilter(_failures)


class Manager(ocp.CheckpointManager):
    """Orbax's manager, which leaves it to the training loop to notice a preemption."""

    def reached_preemption(self, step: int) -> bool:
        # Asking is a collective that numbers its calls.  The loop asks after every step, and a
        # second caller that asks at saves alone would leave the processes waiting for each other.
        del step
        return False


class Checkpoints:
    """The checkpoints of one workdir: train state, data position, and what both depend on."""

    def __init__(
        self,
        workdir: PathLike,
        *,
        keep: int | None = 2,
        keep_every: int | None = None,
        asynchronous: bool = True,
    ):
        """Opens `workdir/checkpoints` and deletes unfinished saves.

        Args:
            workdir: the folder of the run; the caller holds its lock.
            keep: how many of the newest checkpoints stay; None keeps all, see `keep_only`.
            keep_every: steps divisible by this stay too.
            asynchronous: `save` returns as soon as the state may be donated.

        Raises:
            UserError: Orbax cannot write below a path of this name.
        """
        self.folder = find_folder(workdir)
        policies = [preservation_policy.LatestN(keep)]
        if keep_every:
            policies.append(preservation_policy.EveryNSteps(keep_every))
        options = ocp.CheckpointManagerOptions(
            preservation_policy=preservation_policy.AnyPreservationPolicy(policies),
            enable_async_checkpointing=asynchronous,
            cleanup_tmp_directories=True,  # of a process that was killed
            lightweight_initialize=True,  # it reads no metadata of its own: ours says more
        )
        self.manager = Manager(self.folder, options=options)
        _failures.errors[self.folder] = None

    def save(self, step: int, state: Any, position: Mapping[str, Any]) -> None:
        """Saves `state` and `position` as checkpoint `step`, unless that exists.

        Args:
            step: how many updates `state` has seen.
            state: a pytree of jax.Arrays, laid out in any way over any number of processes.
            position: JSON; the position in the data, and the fingerprints it depends on.

        Raises:
            FloatingPointError: a leaf holds a NaN or an infinity; the message names it.
            UserError: this save, or an earlier asynchronous one, could not be written.
        """
        self.wait()
        # As where a request to stop follows a save by its period.
        if step in self.manager.all_steps():
            return
        leaves = named_leaves.flatten(state)
        # Before the arrays go to Orbax: its copies are what may be damaged.
        table, not_finite = checksums.describe(leaves)
        if not_finite:
            names = ", ".join(not_finite)
            raise FloatingPointError(f"step {step} is not saved, not finite: {names}")
        record = verification.make_record(table, position)
        items = ocp.args.Composite(
            state=ocp.args.PyTreeSave(named_leaves.nest(leaves)), record=ocp.args.JsonSave(record)
        )
        with report_failure(self.folder):
            # The caller decides when to save, not the intervals of the manager.
            self.manager.save(step, args=items, force=True)

    def restore(self, like: Any) -> tuple[Any, dict, int] | None:
        """Restores the newest checkpoint that verifies, with the shardings of `like`.

        Args:
            like: a pytree of jax.ShapeDtypeStructs with shardings, or of arrays.

        Returns:
            (state, position, step), or None if there is no checkpoint at all.

        Raises:
            UserError: the newest readable checkpoint has other leaves, shapes or dtypes than
                `like`, or there are checkpoints and none verifies; nothing is moved then.
        """
        self.wait()
        restored = verification.load_newest(self.folder, named_leaves.flatten(like))
        if restored is None:
            return None
        # Newer ones that do not verify; warnings have named them.
        if restored.refused:
            self.put_aside(restored.refused)
        # By order, not by name: `flatten` keeps the order of `like`.
        state = jax.tree.unflatten(jax.tree.structure(like), restored.leaves.values())
        return state, restored.position, restored.step

    def has(self, step: int, like: Any) -> bool:
        """Verifies checkpoint `step`; one that fails is moved aside, and a warning says why."""
        self.wait()
        try:
            verification.load(self.folder / str(step), named_leaves.flatten(like), within="")
            return True
        except DamagedError as error:
            logging.warning("checkpoint %s is refused: %s", self.folder / str(step), error)
        self.put_aside([step])
        return False

    def iter_positions(self) -> Iterator[dict]:
        """Yields the position of every checkpoint whose record can be read."""
        for step in list_steps(self.folder):
            with contextlib.suppress(DamagedError):
                yield verification.read_record(self.folder / str(step))["position"]

    def keep_only(self, steps: Collection[int]) -> None:
        """Deletes all checkpoints but those of `steps`; the first process decides."""
        self.wait()
        if jax.process_index() == 0:  # the folder is shared
            with report_failure(self.folder):
                for step in set(list_steps(self.folder)) - set(steps):
                    shutil.rmtree(self.folder / str(step))
        multihost_utils.sync_global_devices("superfluous checkpoints are gone")
        self.manager.reload()  # it keeps a list of the steps

    def check(self) -> None:
        """Raises UserError if an earlier asynchronous save failed; never waits."""
        # First what the log said: where several processes save, the manager waits for all of them
        # before it raises, and so never does if one has failed.
        if error := _failures.errors.get(self.folder):
            raise make_write_error(self.folder, error) from error
        if not self.manager.is_saving_in_progress():
            with report_failure(self.folder):
                self.manager.wait_until_finished()

    def wait(self) -> None:
        """Waits until every save is on disk; raises UserError if one failed."""
        while self.manager.is_saving_in_progress():
            self.check()  # after a failure here, Orbax would wait for the others for ever
            time.sleep(0.005)
        self.check()

    def close(self) -> None:
        """Waits for the last save and ends Orbax's threads."""
        self.wait()
        with report_failure(self.folder):
            self.manager.close()
        _failures.errors.pop(self.folder, None)  # else every run of a process would stay in it

    def put_aside(self, steps: Iterable[int]) -> None:
        """Moves checkpoints to `checkpoints-refused`, where a person may want to look at them."""
        if jax.process_index() == 0:
            for step in filter(lambda x: os.path.lexists(self.folder / str(x)), steps):
                aside = find_unused_path(self.folder.with_name("checkpoints-refused") / str(step))
                aside.parent.mkdir(exist_ok=True)
                shutil.move(self.folder / str(step), aside)
        multihost_utils.sync_global_devices("refused checkpoints are out of the way")
        self.manager.reload()
