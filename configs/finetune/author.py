"""Who wrote a paragraph of a president's message: of which party, or in which century?

    python -m finetune.main --config=configs/finetune/author.py --config.init=runs/xlnet-mini
    python -m finetune.main --config=configs/finetune/author.py:century --config.init=runs/bert-mini

Nothing is downloaded.  Years ending in 4 are dev and in 9 test, so no message is in two splits; the
same presidents are.  Naive Bayes tells the party of 79% of dev and 61% of test, the century of 86%
and 89%.
"""

from ml_collections import ConfigDict

from configs.finetune import common


def get_config(preset: str = "party") -> ConfigDict:
    """One of "party", "century"."""
    if preset not in ("party", "century"):
        raise ValueError(f"there is no preset {preset!r}; there are party, century")
    config = common.base()
    config.data = dict(format="sotu_author", label=preset, train="train", dev="dev", test="test")
    config.task = dict(name="classify", metrics=("accuracy", "macro_f1"))
    config.batches = dict(B=32, L=128, eval_B=64)
    config.epochs = 2.0
    config.model = dict(dropout=0.1)
    config.optim.update(lr=3e-4)
    config.train.update(best="dev/accuracy", log_every=100, eval_every=300)
    return config
