"""Orbax, in three verbs: save a run, restore a run, load another run's backbone.

Orbax writes; `pretrain.verified` reads.  A checkpoint that does not verify is put aside, loudly,
and the one before it is used.
"""

import contextlib
import errno
import fnmatch
import gc
import itertools
import json
import logging
import os
import pathlib
import shutil
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
from flax import traverse_util
from jax.experimental import multihost_utils
from orbax.checkpoint import v1 as ocp_v1
from orbax.checkpoint.checkpoint_managers import preservation_policy

from pretrain import checksums, verified
from pretrain.data.addresses import without_credentials
from pretrain.errors import UserError
from pretrain.workdir import read_json, write_json

PathLike = str | os.PathLike
HELD = 1 << 24  # bytes of arrays that `write` may leave in memory
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
        leaves = verified.flatten(state)
        table, strange = checksums.describe(leaves)
        if strange:
            raise FloatingPointError(f"step {step} is not saved, not finite: {', '.join(strange)}")
        record = verified.seal({"leaves": table, "position": position})
        items = ocp.args.Composite(
            state=ocp.args.PyTreeSave(verified.nest(leaves)), record=ocp.args.JsonSave(record)
        )
        with self._writing():
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
        found = verified.newest(self.folder, verified.flatten(like))
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
            verified.read(self.folder / str(step), verified.flatten(like), within="")
            return True
        except verified.DamagedError as error:
            logging.warning("checkpoint %s is refused: %s", self.folder / str(step), error)
        self._put_aside([step])
        return False

    def positions(self) -> Iterator[dict]:
        """The position of every checkpoint whose record can be read."""
        for step in verified.steps(self.folder):
            with contextlib.suppress(verified.DamagedError):
                yield verified.read_record(self.folder / str(step))["position"]

    def keep_only(self, steps: Collection[int]) -> None:
        """Deletes all checkpoints but those of `steps`, as the first process names them."""
        self.wait()
        if jax.process_index() == 0:
            with self._writing():
                for step in set(verified.steps(self.folder)) - set(steps):
                    shutil.rmtree(self.folder / str(step))
        multihost_utils.sync_global_devices("superfluous checkpoints are gone")
        self.manager.reload()

    def check(self) -> None:
        """UserError if an earlier asynchronous save could not be written; never waits."""
        if error := _failures.errors.get(self.folder):
            raise self._unwritten(error) from error
        if not self.manager.is_saving_in_progress():
            with self._writing():
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
        with self._writing():
            self.manager.close()
        _failures.errors.pop(self.folder, None)

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except (OSError, ValueError) as error:  # a full disk is either, by who met it first
            raise self._unwritten(error) from error

    def _unwritten(self, error: BaseException) -> UserError:
        why = verified.reason(error)
        return UserError(f"a checkpoint could not be written in {self.folder}: {why}")

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


def write(workdir: PathLike, step: int, leaves: Iterable[tuple[str, np.ndarray]]) -> None:
    """A checkpoint of arrays that need not be in memory together, drawn one at a time.

    What stood there under this step is replaced, and there is nothing before the last is written.

    Args:
        leaves: by name, as "params/backbone/token_VD".

    Raises:
        FloatingPointError: an array holds a NaN or an infinity; the message names it.
        UserError: it could not be written.
    """
    folder = folder_in(workdir) / str(step)
    draft = folder.with_name(f"{step}.draft")
    table: dict[str, dict] = {}
    held = 0
    for path in (folder, draft, draft.with_name(f"{draft.name}.partial_save")):
        shutil.rmtree(path, ignore_errors=True)
    with _writing(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
    options = ocp_v1.Context()
    options.array.saving.use_zarr3 = False
    options.memory.deepcopy_host_arrays = False
    options.array.saving.use_compression = False  # which would take memory for two more
    for name, x in leaves:
        described, strange = checksums.describe({name: x})
        if strange:
            raise FloatingPointError(f"{name} is not finite")
        table |= described
        with _writing(folder), options:
            ocp_v1.partial.save(draft, verified.nest({name: x}))
        held += x.nbytes
        del x
        if held > HELD:  # Orbax leaves a cycle that holds the array; the next needs its room
            gc.collect()
            held = 0
    record = verified.seal({"leaves": table, "position": {}})
    with _writing(folder):
        with options:
            ocp_v1.partial.finalize(draft)
        write_json(draft / "record" / "metadata", record)
        draft.rename(folder)


@contextlib.contextmanager
def _writing(folder: pathlib.Path) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:  # a full disk is either, by who met it first
        why = next((text for text in FULL if text in str(error)), verified.reason(error))
        raise UserError(f"{folder} could not be written: {why}") from error


def vacant(path: pathlib.Path) -> pathlib.Path:
    """`path`, or the first of path-1, path-2, ... that does not exist."""
    numbered = (path.with_name(f"{path.name}-{n}") for n in itertools.count(1))
    return next(each for each in itertools.chain([path], numbered) if not os.path.lexists(each))


def load_backbone(params: dict, workdir: PathLike) -> dict:
    """`params` with its backbone replaced by the one another run trained.

    Args:
        params: {"backbone": ..., everything else}; decides shapes, dtypes and layout.
        workdir: the other run's folder; only read, and that run may still be going.

    Raises:
        UserError: there is no checkpoint, none verifies, or its backbone has other leaves,
            shapes or dtypes; every such leaf is named.
    """
    found, _ = load({"params": {"backbone": params["backbone"]}}, workdir, "params/backbone/")
    return {**params, **found["params"]}


def load(like: dict, workdir: PathLike, within: str) -> tuple[dict, int]:
    """What `like` holds of a state, as the newest checkpoint of a run has it, and its step.

    Args:
        like: decides shapes, dtypes and layout, and holds all leaves `within` a folder of the
            state, as "params/", or the one of that name, and no other.
        workdir: the run's folder; only read, and that run may still be going.

    Raises:
        UserError: as `load_backbone`.
    """
    folder = pathlib.Path(workdir).resolve() / "checkpoints"
    found = verified.newest(folder, verified.flatten(like), within=within)
    if found is None:
        raise UserError(f"there is no checkpoint in {folder} to take weights from")
    return jax.tree.unflatten(jax.tree.structure(like), found.leaves.values()), found.step


def write_config(workdir: PathLike, config: Mapping[str, Any]) -> None:
    """Keeps the recipe of a run beside its weights, in `config.json`, without credentials.

    Others may read the file, to go on from the run, unless the recipe held credentials.
    """
    public = _redact(config)
    has_secrets = json.dumps(public) != json.dumps(config)
    write_json(pathlib.Path(workdir) / "config.json", public, private=has_secrets)


def read_config(workdir: PathLike) -> dict:
    """The recipe of the run in `workdir`; UserError if it is missing or broken."""
    return read_json(pathlib.Path(workdir) / "config.json")


def differences(saved: Mapping[str, Any], present: Mapping[str, Any]) -> list[str]:
    """Where two nested dictionaries differ, a line each: "optim.lr: 0.0004 -> 0.001".

    Credentials in their addresses are neither compared nor told.
    """
    old, new = (dotted(_redact(json.loads(json.dumps(each)))) for each in (saved, present))
    names = list(dict.fromkeys([*old, *new]))
    return [
        f"{name}: {old.get(name, '(absent)')} -> {new.get(name, '(absent)')}"
        for name in names
        if name not in old or name not in new or old[name] != new[name]
    ]


def _redact(tree: Any) -> Any:
    """Removes the credentials from every address in nested dictionaries and lists."""
    if isinstance(tree, Mapping):
        return {name: _redact(value) for name, value in tree.items()}
    if isinstance(tree, list | tuple):
        return [_redact(value) for value in tree]
    return without_credentials(tree) if isinstance(tree, str) else tree


def dotted(tree: dict) -> dict:
    return traverse_util.flatten_dict(tree, sep=".")
