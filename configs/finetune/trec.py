"""Fine-tunes on TREC (Li and Roth 2002): does a question ask for a person, a number, a place ... ?

    python -m finetune.main --config=configs/finetune/trec.py --config.init=runs/bert-base
    python -m finetune.main --config=configs/finetune/trec.py:scratch

Run it where the data are, or name them: --config.data.train=... .  Lines as "NUM:date When was
Ozzy Osbourne born ?", in the files TREC.train or train_5500.label, of which the part before the
colon is told, six classes; data.until= (nothing) tells all 50.  Lines that begin with a class
alone (TREC.train.all) are read as they are.  There is no development set, and the last step
counts.  "scratch" needs no pretrained model: Kim's CNN came to 91.2% so, to 93.6% with word2vec.

    on the test set
    scratch                                                                          88.0%
    MiniLM, six layers, optim.lr=1e-4 batches.L=32                                   96.6%
"""

from ml_collections import ConfigDict

from configs import common as shared
from configs.finetune import common, sst2


def get_config(preset: str = "tuned") -> ConfigDict:
    """Returns one of "tuned", "scratch"."""
    return shared.choose(preset, {"tuned": tuned, "scratch": scratch})


def tuned() -> ConfigDict:
    config = common.base()
    config.data = dict(
        format="table",
        kind="lines",
        encoding="latin-1",
        until=":",
        train="TREC.train",
        dev="",
        test="TREC.test",
    )
    config.task = common.task("classify", metrics=("accuracy",))
    config.batches = dict(B=32, L=48, eval_B=64)
    return config


def scratch() -> ConfigDict:
    return sst2.from_scratch(tuned())
