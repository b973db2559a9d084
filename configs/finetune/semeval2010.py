"""Fine-tunes on SemEval-2010 task 8 (Hendrickx et al. 2010): how are two marked words related?

    python -m finetune.main --config=configs/finetune/semeval2010.py --config.init=runs/bert-base

Run it where the data are, or name them: --config.data.train=... .  The words are told by marks
around them, as in "The $ kitchen $ is the last renovated part of the # house # .", and the relation
by the state of the whole; relation_f1 is the official score: the mean F1 of nine relations, the
direction counting.  There is no development set, and the last step counts.  Values and marks of
Wu and He 2019, who came to 89.25 with the words' own states besides.  MiniLM, six layers,
optim.lr=1e-4 epochs=3 batches.L=56: 81.1.
"""

from ml_collections import ConfigDict

from configs.finetune import common


def get_config() -> ConfigDict:
    config = common.base()
    config.data = dict(
        format="semeval2010",
        marks=("$ ", " $", "# ", " #"),
        train="TRAIN_FILE.TXT",
        dev="",
        test="TEST_FILE_FULL.TXT",
    )
    config.task = common.task("classify", metrics=("accuracy", "relation_f1"))
    config.epochs = 5.0
    config.batches = dict(B=16, L=128, eval_B=64)
    config.train.update(eval_every=500)
    return config
