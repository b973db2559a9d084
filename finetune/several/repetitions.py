"""Keeps the jobs of one workdir apart: a single one, or one for each seed and fold."""

import re
from collections.abc import Iterable
from pathlib import Path

from pretrain.runtime.errors import UserError
from pretrain.runtime.run_config import JOBS
from pretrain.training.workdir import holds_run

KINDS = {  # by the folders of their jobs, without numbers
    "": "a single job",
    "seed": "a job for each seed",
    "fold": "a job for each fold",
    "seed/fold": "a job for each seed and fold",
}


def check_folder(workdir: Path, names: Iterable[str]) -> None:
    """Checks that jobs of a recipe are of the kind that the workdir holds.

    More seeds than there are go on in the same workdir, or fewer; each job compares its own recipe.

    Args:
        names: the jobs' folders within the workdir; "": itself, of a single job.

    Raises:
        UserError: a run of the workdir is of another kind.
    """
    wanted = {name_kind(name) for name in names}
    folders = [workdir, *(folder for pattern in JOBS for folder in sorted(workdir.glob(pattern)))]
    for folder in filter(holds_run, folders):
        kind = name_kind("" if folder == workdir else str(folder.relative_to(workdir)))
        if kind not in wanted:
            # No --accept_changes: neither goes on from the other, and results would be mixed.
            raise UserError(
                f"{workdir} holds a run of another recipe, of {KINDS[kind]} (num_seeds, "
                f"data.folds), and this one is of {KINDS[min(wanted)]}; take another --workdir"
            )


def name_kind(name: str) -> str:
    """Returns the kind of job that has such a folder, as "seed/fold" of "seed-2/fold-0"."""
    return re.sub(r"-\d+", "", name)
