"""Classifies paragraphs of presidents' messages: by their century, or their author's party.

    python -m finetune.main --config=configs/finetune/author.py --config.init=runs/xlnet-mini
    python -m finetune.main --config=configs/finetune/author.py:party --config.init=runs/bert-mini

Nothing is downloaded.  Years ending in 4 are dev and in 9 test, so no message is in two splits; the
same presidents are.  With 2,000 paragraphs to learn from, XLNet's mini tells the century of 81.7%
of dev and 80.2% of test, the same network from random weights (--config.random_init=True) 79.2%
and 78.8%: means of three seeds and of two, with deviations of up to 1.5.  Naive Bayes, of all
16,497 (--config.max_train_examples=0), 86% and 89%; the party of 79% and 61%.
"""

from ml_collections import ConfigDict

from configs.finetune import common


def get_config(preset: str = "century") -> ConfigDict:
    """Returns one of "century", "party"."""
    if preset not in ("century", "party"):
        raise ValueError(f"there is no preset {preset!r}; there are century, party")
    config = common.base()
    config.data = dict(format="sotu_author", label=preset, train="train", dev="dev", test="test")
    config.task = common.task("classify", metrics=("accuracy",))
    config.batches = dict(B=32, L=128, eval_B=64)
    config.max_train_examples, config.epochs = 2000, 4.0
    config.model = dict(dropout=0.1)
    config.optim.lr = 1e-3
    config.train.update(best="dev/accuracy", log_every=50, eval_every=125)
    return config
