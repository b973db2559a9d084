"""The section `train` has the same defaults in the recipes as where the loop reads it."""

from configs import common
from pretrain.training.train_config import TrainConfig


def test_the_section_that_recipes_share_says_the_defaults():
    assert TrainConfig(**common.base().train) == TrainConfig()
