"""Trains sentence vectors as SimCSE does (Gao et al. 2021, arXiv 2104.08821).

    python -m finetune.main --config=configs/finetune/simcse.py:unsup --config.init=runs/bert-base
    python -m finetune.main --config=configs/finetune/simcse.py:sup --config.init=runs/bert-base

Run it where the data are: wiki1m_for_simcse.txt, a million sentences of Wikipedia, and
nli_for_simcse.csv, whose columns sent0, sent1 and hard_neg are a premise, what follows from it and
what contradicts it; and STS-B as stsb-multi-mt gives it out.

A row's views differ by dropout alone.  The best by Spearman's correlation on STS-B's dev set is
kept.  Values of the released scripts and README (github.com/princeton-nlp/SimCSE), published there:

    preset  model       optim.lr  B    mean of seven tasks (Spearman, all pairs of a task)
    unsup   BERT-base   3e-5      64   76.25
    unsup   BERT-large  1e-5      64   78.41
    sup     BERT-base   5e-5      512  81.57
    sup     BERT-large  1e-5      512  82.21

Unsupervised, a dense layer with tanh above [CLS] is trained and left out of the vectors; supervised
it stays.  Its weights are the task's: `finetune.predict` has them, `finetune.similarity` and
`pretrain.embed` read the backbone alone.  512 rows that do not fit into memory are read in parts,
--config.train.parts=8, with the gradient of the whole batch.
"""

from ml_collections import ConfigDict

from configs import common as shared
from configs.finetune import common


def get_config(preset: str = "unsup") -> ConfigDict:
    """Returns one of "unsup", "sup"."""
    return shared.choose(preset, {"unsup": unsup, "sup": sup})


def base() -> ConfigDict:
    """Returns what both share; AdamW is Hugging Face's default, with a linear decay from step 1."""
    config = common.base()
    config.data = dict(format="similarity", dev="stsb-en-dev.csv", test="stsb-en-test.csv")
    config.task = common.task("contrast")
    # The state that stands for a row: [CLS] of BERT.
    config.task.head.update(pool="", eval_pool="", projection="mlp")
    config.task.loss.update(name="softmax", temperature=0.05)
    config.optim.update(warmup=0.0, eps=1e-8, weight_decay=0.0)
    config.train.update(best="dev/spearman", eval_every=125)
    return config


def unsup() -> ConfigDict:
    config = base()
    config.data.train = dict(format="sentences", path="wiki1m_for_simcse.txt", lines=True)
    config.task.head.mlp_only_train = True
    config.batches = dict(B=64, L=32, eval_B=128)
    config.optim.lr, config.epochs = 3e-5, 1.0
    return config


def sup() -> ConfigDict:
    config = base()
    config.data.train = dict(
        format="table",
        path="nli_for_simcse.csv",
        texts=("sent0", "sent1", "hard_neg"),
        label="",
    )
    config.task.head.mlp_only_train = False
    config.task.loss.update(positives="texts", hard_negative_weight=0.0)
    config.batches = dict(B=512, L=32, eval_B=128)
    config.optim.lr, config.epochs = 5e-5, 3.0
    return config
