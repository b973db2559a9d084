"""Orbax, in three verbs: save a run, restore a run, load another run's backbone.

Orbax writes; `pretrain.checkpoint.integrity` reads.  A checkpoint that does not verify is put
aside, loudly, and the one before it is used.
"""

import contextlib
import errno
import fnmatch
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

from pretrain.checkpoint import checksums, integrity
from pretrain.runtime.errors import UserError
from pretrain.runtime.files import PathLike
from pretrain.runtime.unused_path import vacant

FULL = tuple(map(os.strerror, (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS)))


class Failures(logging.Filter):
    """Takes what a save failed with from Orbax's log, where it stands first and at great length.

    Attributes:
        errors: by folder of checkpoints, of those that are open.
    """

    def __init__(self) -> None:
        super().__init__()
        self.errors: dict[pathlib.Path, BaseException | None] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Lets all pass but tracebacks of Orbax: whoever asks for the save is given the error."""
        if not record.exc_info or "orbax" not in record.pathname:
            return True
        message = record.getMessage()
        self.errors |= {x: record.exc_info[1] for x in list(self.errors) if str(x) in message}
        return False


_failures = Failures()
logging.getLogger("absl").addFilter(_failures)


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
        """Opens `workdir/checkpoints` and clears away unfinished saves.

        Args:
            workdir: the folder of the run; the caller holds its lock.
            keep: how many of the newest checkpoints stay; None: all, see `keep_only`.
            keep_every: steps divisible by this stay too.
            asynchronous: `save` returns as soon as the state may be donated.

        Raises:
            UserError: Orbax cannot write below a path of this name.
        """
        self.folder = folder_in(workdir)
        kept = [preservation_policy.LatestN(keep)]
        if keep_every:
            kept.append(preservation_policy.EveryNSteps(keep_every))
        options = ocp.CheckpointManagerOptions(
            preservation_policy=preservation_policy.AnyPreservationPolicy(kept),
            enable_async_checkpointing=asynchronous,
            cleanup_tmp_directories=True,
            lightweight_initialize=True,
        )
        self.manager = ocp.CheckpointManager(self.folder, options=options)
        # Orbax would ask for the moment to stop too, numbering its questions in its own way.
        self.manager.reached_preemption = lambda step: False
        _failures.errors[self.folder] = None

    def save(self, step: int, state: Any, position: Mapping[str, Any]) -> None:
        """Saves `state` and `position` as checkpoint `step`, unless it is there already.

        Args:
            step: how many updates `state` has seen.
            state: a pytree of jax.Arrays, laid out in any way over any number of processes.
            position: JSON; where the data stream stands, and the fingerprints it depends on.

        Raises:
            FloatingPointError: a leaf holds a NaN or an infinity; the message names it.
            UserError: this save, or an earlier asynchronous one, could not be written.
        """
        self.wait()
        if step in self.manager.all_steps():
            return
        leaves = integrity.flatten(state)
        table, strange = checksums.describe(leaves)
        if strange:
            raise FloatingPointError(f"step {step} is not saved, not finite: {', '.join(strange)}")
        record = integrity.seal({"leaves": table, "position": position})
        items = ocp.args.Composite(
            state=ocp.args.PyTreeSave(integrity.nest(leaves)), record=ocp.args.JsonSave(record)
        )
        with report_failure(self.folder):
            self.manager.save(step, args=items, force=True)

    def restore(self, like: Any) -> tuple[Any, dict, int] | None:
        """The newest checkpoint that verifies, laid out as `like`.

        Newer ones that do not are named in warnings and moved to `checkpoints-refused`.

        Args:
            like: a pytree of jax.ShapeDtypeStructs with shardings, or of arrays.

        Returns:
            (state, position, step), or None if there is no checkpoint at all.

        Raises:
            UserError: the newest readable checkpoint has other leaves, shapes or dtypes than
                `like`, or there are checkpoints and none verifies; nothing is moved then.
        """
        self.wait()
        found = integrity.newest(self.folder, integrity.flatten(like))
        if found is None:
            return None
        if found.refused:
            self._put_aside(found.refused)
        state = jax.tree.unflatten(jax.tree.structure(like), found.leaves.values())
        return state, found.position, found.step

    def has(self, step: int, like: Any) -> bool:
        """Whether checkpoint `step` verifies; if not, it is put aside, and a warning says why."""
        self.wait()
        try:
            integrity.read(self.folder / str(step), integrity.flatten(like), within="")
            return True
        except integrity.DamagedError as error:
            logging.warning("checkpoint %s is refused: %s", self.folder / str(step), error)
        self._put_aside([step])
        return False

    def positions(self) -> Iterator[dict]:
        """The position of every checkpoint whose record can be read."""
        for step in integrity.steps(self.folder):
            with contextlib.suppress(integrity.DamagedError):
                yield integrity.read_record(self.folder / str(step))["position"]

    def keep_only(self, steps: Collection[int]) -> None:
        """Deletes all checkpoints but those of `steps`, as the first process names them."""
        self.wait()
        if jax.process_index() == 0:
            with report_failure(self.folder):
                for step in set(integrity.steps(self.folder)) - set(steps):
                    shutil.rmtree(self.folder / str(step))
        multihost_utils.sync_global_devices("superfluous checkpoints are gone")
        self.manager.reload()

    def check(self) -> None:
        """UserError if an earlier asynchronous save could not be written; never waits."""
        if error := _failures.errors.get(self.folder):
            raise write_error(self.folder, error) from error
        if not self.manager.is_saving_in_progress():
            with report_failure(self.folder):
                self.manager.wait_until_finished()

    def wait(self) -> None:
        """Returns when every save is on disk; UserError if one could not be written."""
        while self.manager.is_saving_in_progress():
            self.check()  # where it failed in this process, Orbax would wait for the others
            time.sleep(0.005)
        self.check()

    def close(self) -> None:
        """Waits for the last save and ends Orbax's threads."""
        self.wait()
        with report_failure(self.folder):
            self.manager.close()
        _failures.errors.pop(self.folder, None)

    def _put_aside(self, steps: Iterable[int]) -> None:
        if jax.process_index() == 0:
            for step in filter(lambda x: os.path.lexists(self.folder / str(x)), steps):
                aside = vacant(self.folder.with_name("checkpoints-refused") / str(step))
                aside.parent.mkdir(exist_ok=True)
                shutil.move(self.folder / str(step), aside)
        multihost_utils.sync_global_devices("refused checkpoints are out of the way")
        self.manager.reload()


def folder_in(workdir: PathLike) -> pathlib.Path:
    """Where the checkpoints of a workdir are.

    Raises:
        UserError: Orbax, which looks for its files by a pattern, could not find them there.
    """
    folder = pathlib.Path(workdir).resolve() / "checkpoints"
    whole = all(fnmatch.fnmatchcase(part, part) for part in folder.parts)
    if "\\" in str(folder) or "**" in str(folder) or not whole:
        raise UserError(
            f"{folder.parent}: checkpoints cannot be written below a path with [...], ** or a "
            "backslash in it; take another --workdir"
        )
    return folder


@contextlib.contextmanager
def report_failure(folder: pathlib.Path) -> Iterator[None]:
    """Turns what Orbax raises where it cannot write into a `write_error`."""
    try:
        yield
    except (OSError, ValueError) as error:  # a full disk is either, by who met it first
        raise write_error(folder, error) from error


def write_error(folder: pathlib.Path, error: BaseException) -> UserError:
    """Says in a line why a checkpoint could not be written; a full disk by its own name."""
    why = next((text for text in FULL if text in str(error)), integrity.reason(error))
    return UserError(f"a checkpoint could not be written in {folder}: {why}")
