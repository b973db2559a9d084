"""The recipe's `train` section: how a run goes about its steps."""

import dataclasses
from collections.abc import Mapping, Sequence


@dataclasses.dataclass(frozen=True)
class TrainConfig:
    """Microbatches, averaging, periods, and what ends a run.

    Attributes:
        parts: microbatches whose gradients are added up before an update.
        average: rate of the moving average of the parameters, which evaluation then uses; 0: none.
        norms: writes the norms of gradients, weights and updates of every layer, see
            `gradient_norms`; they cost a pass over the parameters.
        max_skips: steps in a row that may be skipped as not finite before the run gives up.
        log_every, eval_every, save_every: steps between two lines of metrics, steps between two
            evaluations, steps between two checkpoints; 0: the last step alone does it.
        eval_batches: batches of each held-out stream read per evaluation; 0: all.
        keep: how many of the newest checkpoints are kept.
        keep_every: steps between two checkpoints that are kept for good; 0: none are.
        best: a held-out number, as "dev/accuracy" or "-dev/loss", by which the best parameters are
            kept in `workdir/best`, too; "": none.
        means: names of held-out numbers, as ("sst1/dev/accuracy", "sst2/dev/accuracy"), by the name
            of their mean: that of `accuracy` is "mean/accuracy", which may be the `best`.
        trackers: where the metrics go besides: files of `reports.trackers`, as ("tensorboard",
            "wandb"), or modules of your own.
        stop_after: evaluations in a row without a better one that end the run; 0: none do.
    """

    parts: int = 1
    average: float = 0.0
    norms: bool = False
    max_skips: int = 10
    log_every: int = 100
    eval_every: int = 1000
    eval_batches: int = 0
    save_every: int = 1000
    keep: int = 2
    keep_every: int = 0
    best: str = ""
    means: Mapping[str, Sequence[str]] = dataclasses.field(default_factory=dict)
    stop_after: int = 0
    trackers: Sequence[str] = ("tensorboard",)
