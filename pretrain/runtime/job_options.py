"""Names the options of a job beside its recipe."""

from typing import NamedTuple


class JobOptions(NamedTuple):
    """Holds how a job runs, whatever its recipe.

    Attributes:
        name: of the folder of its compiled programs; "": that of the workdir.
        command: line that the job was started by, without credentials; "": from Python.
        accept_changes: resumes although the recipe or the data have changed.
        verify: reads all of the prepared corpus at the start.
        joins: the job is a process of its own, and joins those of its run.
        heartbeat: seconds without a sign of life after which a process counts as lost.
        join_timeout: seconds to wait until all processes have joined.
    """

    name: str = ""
    command: str = ""
    accept_changes: bool = False
    verify: bool = False
    joins: bool = True
    heartbeat: int = 60
    join_timeout: int = 300


DEFAULTS = JobOptions()
