"""A fine-tuned run, as `finetune.job` loads it and predictions use it."""

from typing import NamedTuple

from flax import linen as nn

from finetune.tasks import TaskData
from pretrain.inference.run import Run


class TunedRun(NamedTuple):
    """A fine-tuned run with both halves of its task, or of one of its tasks.

    Attributes:
        task: the half to train; of several tasks a `SharedTasks` of this one.
        name: of the one of several tasks; "": there is one.
    """

    run: Run
    data: TaskData
    task: nn.Module
    name: str = ""
