"""Writes a checkpoint one array at a time."""

import gc
import shutil
from collections.abc import Iterable

import numpy as np
from orbax.checkpoint import v1 as ocp_v1

from pretrain.checkpoint import checksums, integrity
from pretrain.checkpoint.manager import folder_in, report_failure
from pretrain.runtime.files import PathLike, rename_folder, write_json

HELD = 1 << 24  # bytes of arrays that `write` may leave in memory


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
    with report_failure(folder.parent):
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
        with report_failure(folder.parent), options:
            ocp_v1.partial.save(draft, integrity.nest({name: x}))
        held += x.nbytes
        del x
        if held > HELD:  # Orbax leaves a cycle that holds the array; the next needs its room
            gc.collect()
            held = 0
    record = integrity.seal({"leaves": table, "position": {}})
    with report_failure(folder.parent):
        with options:
            ocp_v1.partial.finalize(draft)
        write_json(draft / "record" / "metadata", record)
        rename_folder(draft, folder)
