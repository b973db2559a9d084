"""Numbers of texts, as how alike two sentences are: the squared error is trained.

Devlin et al. 2019, section 4.1 (STS-B).
"""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from finetune.inputs.rows import RowBuilder
from finetune.metrics import classification
from finetune.tasks import classify
from modules.metrics import Sum
from pretrain.runtime.errors import UserError


class Form(classify.Form):
    """Examples {"texts": [...], "label": number} to rows, and back."""

    def __init__(
        self,
        inputs: RowBuilder,
        examples: Sequence[dict],
        *,
        metrics: Sequence[str] = ("pearson", "spearman"),
        both: bool = False,
    ):
        """`metrics`, `both`: see `classify.Form`."""
        del examples
        super().__init__(inputs, [], labels=("", "number"), metrics=metrics, both=both)

    def kept(self) -> dict[str, Any]:
        """What another `Form` of the same task is made with."""
        return dict(metrics=self.metrics, both=self.both)

    def head(self) -> dict[str, Any]:
        """Fields of `Task` that follow from the data."""
        return dict(place=self.inputs.format.pool)

    def arrays(self, examples: Sequence[dict]) -> dict[str, np.ndarray]:
        """Rows in the system's format, and numbers; NaN where one is not known."""
        numbers = [self.number(x) for x in examples]
        return self.rows(examples) | {"label_B": np.array(numbers, np.float32)}

    def number(self, example: dict) -> float:
        """The label; NaN: not known.  UserError: it is no number."""
        if example["label"] is None:
            return float("nan")
        try:
            return float(example["label"])
        except (TypeError, ValueError):
            raise UserError(
                f"{example['where']}: label {example['label']!r} is no number"
            ) from None

    def scores(self, examples: Sequence[dict], outputs: dict[str, np.ndarray]) -> dict[str, float]:
        """The task's metrics."""
        truth, told = [self.number(x) for x in examples], outputs["value_B"].astype(float).tolist()
        return classification.score(self.metrics, told, truth)

    def lines(self, examples: Sequence[dict], outputs: dict[str, np.ndarray]) -> list[dict]:
        """The number told of each example."""
        return [{"value": float(x)} for x in outputs["value_B"]]


class Task(classify.Task):
    """`classify.Task` with one number in the place of classes."""

    C: int = 1

    def losses(self, logits_BC, label_B, weight_B):
        error_B = logits_BC[:, 0] - label_B
        return {"loss": Sum((jnp.square(error_B) * weight_B).sum(), weight_B.sum(), train=True)}

    def known(self, label_B):
        return ~jnp.isnan(label_B), jnp.nan_to_num(label_B)

    def predict(self, batch):
        """The number of each row."""
        return {"value_B": self._outputs(batch, train=False)[0][:, 0]}
