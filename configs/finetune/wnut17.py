"""Tags WNUT-17 (Derczynski et al. 2017): names of people, places and things in tweets.

    python -m finetune.main --config=configs/finetune/wnut17.py --config.init=runs/bert-base

Run it where the data are (github.com/leondz/emerging_entities_17), or name them:
--config.data.train=... .  Most names of the test set occur nowhere in the training set.  MiniLM,
six layers, optim.lr=2e-4 epochs=2 batches.L=64: 56.8% F1 on the development set, 45.6% on test.
"""

from ml_collections import ConfigDict

from configs.finetune import common


def get_config() -> ConfigDict:
    config = common.base()
    config.data = dict(
        format="conll",
        train="wnut17train.conll",
        dev="emerging.dev.conll",
        test="emerging.test.annotated",
    )
    config.task = common.task("tag", scheme="iob2", convert_to="", piece="first")
    config.batches = dict(B=16, L=128, eval_B=64)
    config.optim.lr = 5e-5
    config.train.best = "dev/f1"
    return config
