"""Predicts examples with one run or several, and formats their predictions."""

from collections.abc import Sequence

import numpy as np

from finetune import datasets
from finetune.tasks import TaskData

Outputs = dict[str, np.ndarray]


class ExamplePredictor:
    """Predicts examples with one run or with several; a subclass says how outputs come about.

    Attributes:
        data: the host's half of `finetune.tasks`.
    """

    data: TaskData

    def __call__(self, examples: Sequence[dict]) -> Outputs:
        """Computes the task's `predict` of all rows of these examples."""
        raise NotImplementedError

    @property
    def folder(self) -> str:
        """Names the folder of the run."""
        raise NotImplementedError

    @property
    def weights(self) -> str:
        """Names the weights that predict, as "step 20"; known once they are read."""
        raise NotImplementedError

    def predict_lines(self, examples: Sequence[dict]) -> tuple[list[dict], list[dict], Outputs]:
        """Predicts each example, as JSON; of one with a "gap" all values are null, for a "reason".

        Returns:
            (a prediction of each example, the examples whose labels are known, their outputs)
        """
        is_labelled = [datasets.has_labels(example) for example in examples]
        lines: list[dict] = [{}] * len(examples)
        labelled: list[dict] = []
        labelled_outputs: Outputs = {}
        # Apart, as an example may have several rows: only the task can say whose outputs are whose.
        for has_labels in set(is_labelled):
            numbers = [i for i, x in enumerate(is_labelled) if x == has_labels]
            chosen = [examples[i] for i in numbers]
            outputs = self(chosen)
            for i, line in zip(numbers, self.data.format_predictions(chosen, outputs), strict=True):
                lines[i] = line
            if has_labels:
                labelled, labelled_outputs = chosen, outputs
        for i, example in enumerate(examples):
            if "gap" in example:  # it was a row for the network, so that all rows have their line
                lines[i] = dict.fromkeys(lines[i]) | {"reason": example["gap"]}
        return lines, labelled, labelled_outputs
