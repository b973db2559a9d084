"""Averages the predictions of several fine-tuned runs.

ULMFiT averages its two directions (Howard & Ruder 2018, arXiv 1801.06146, section 3.4).
"""

from collections.abc import Sequence

from finetune.prediction.example_predictor import ExamplePredictor, Outputs
from pretrain.runtime.errors import UserError


class Ensemble(ExamplePredictor):
    """Predicts with several runs of one task, each of which frames texts as it has learned to.

    Attributes:
        members: of which the first one's task formats and scores.
    """

    def __init__(self, members: Sequence[ExamplePredictor]):
        """Takes the runs' predictors.

        Raises:
            UserError: the runs have learned other tasks, or other labels.
        """
        self.members, self.data = members, members[0].data
        first = members[0]
        for other in members[1:]:
            if type(other.data) is not type(first.data) or find_labels(other) != find_labels(first):
                raise UserError(
                    f"--with: {other.folder} has another task or other labels than {first.folder}"
                )

    def __call__(self, examples: Sequence[dict]) -> Outputs:
        return self.data.average([member(examples) for member in self.members])

    @property
    def folder(self) -> str:
        return ", ".join(member.folder for member in self.members)

    @property
    def weights(self) -> str:
        return " and ".join(f"{member.weights} of {member.folder}" for member in self.members)


def find_labels(member: ExamplePredictor) -> list[str]:
    """Returns the labels of a run's task, in order of their ids; []: it has none."""
    return list(member.data.to_config().get("labels", []))
