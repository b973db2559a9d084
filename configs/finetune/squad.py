"""Fine-tunes on SQuAD 1.1 (Rajpurkar et al. 2016): which words of a paragraph answer a question?

    python -m finetune.main --config=configs/finetune/squad.py --config.init=runs/bert-base

Run it where the data are, or name them: --config.data.train=... .  Values of BERT's run_squad.py;
BERT-Base came to an exact match of 81.2% and 88.4% F1 on the development set.
"""

from ml_collections import ConfigDict

from configs.finetune import common


def get_config() -> ConfigDict:
    config = common.base()
    config.epochs = 2.0
    config.data = dict(format="squad", train="train-v1.1.json", dev="dev-v1.1.json", test="")
    config.task = common.task("span", stride=128, max_query=64, max_answer=30)
    config.batches = dict(B=12, L=384, eval_B=32)
    config.optim.lr = 3e-5
    config.train.update(best="dev/f1", eval_every=2000, save_every=2000)
    return config
