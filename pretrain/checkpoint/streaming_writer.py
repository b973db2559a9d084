"""Writes a checkpoint a few arrays at a time, to be read as any other, by `verification`."""

import gc
import shutil
from collections.abc import Iterable

import numpy as np
from orbax.checkpoint import v1 as ocp_v1

from pretrain.checkpoint import abandoned_work, checksums, named_leaves, verification
from pretrain.checkpoint.errors import report_failure
from pretrain.checkpoint.paths import find_folder
from pretrain.runtime.files import PathLike, rename_folder
from pretrain.runtime.json_files import write_json

BATCH = 1 << 24  # bytes of arrays that are written at once, each time at a cost of its own


def write(workdir: PathLike, step: int, leaves: Iterable[tuple[str, np.ndarray]]) -> None:
    """Writes checkpoint `step` of arrays that are drawn one at a time, in the place of an earlier.

    Args:
        workdir: the folder of the run.
        step: the number of the checkpoint.
        leaves: (name, array) pairs; a name is a path, "params/backbone/token_VD".

    Raises:
        FloatingPointError: an array holds a NaN or an infinity; the message names it.
        UserError: it could not be written.
    """
    folder = find_folder(workdir) / str(step)
    draft = folder.with_name(f"{step}.draft")
    table: dict[str, dict] = {}
    batch: dict[str, np.ndarray] = {}
    # Also what a killed writer left: Orbax would add to it.
    for path in (folder, draft, draft.with_name(f"{draft.name}.partial_save")):
        shutil.rmtree(path, ignore_errors=True)
    with report_failure(folder.parent):
        folder.parent.mkdir(parents=True, exist_ok=True)
    options = ocp_v1.Context()
    options.array.saving.use_zarr3 = False  # as the manager writes
    options.memory.deepcopy_host_arrays = False
    options.array.saving.use_compression = False  # which would take memory for two more

    abandoned_work.silence_tracebacks()  # of the other arrays, where one cannot be written

    # Orbax's manager takes a whole tree, which would have to be in memory; only the partial saves
    # of its v1 interface add arrays to a checkpoint.
    def save() -> None:
        with report_failure(folder.parent), options:
            ocp_v1.partial.save(draft, named_leaves.nest(batch))
        batch.clear()
        gc.collect()  # Orbax leaves a cycle that holds the arrays; the next need their room

    for name, x in leaves:
        row, not_finite = checksums.describe({name: x})
        if not_finite:
            raise FloatingPointError(f"{name} is not finite")
        table |= row
        batch[name] = x
        del x
        if sum(y.nbytes for y in batch.values()) > BATCH:
            save()
    if batch:
        save()
    record = verification.make_record(table, {})
    with report_failure(folder.parent):
        with options:
            ocp_v1.partial.finalize(draft)
        # After the arrays and before the name: a folder called by its step is whole, and appears
        # once all is written.
        write_json(draft / "record" / "metadata", record)
        rename_folder(draft, folder)
