"""Fine-tunes on SQuAD 2.0 (Rajpurkar et al. 2018): some questions have no answer there.

    python -m finetune.main --config=configs/finetune/squad2.py --config.init=runs/bert-base
    python -m finetune.main --config=configs/finetune/squad2.py:xlnet --config.init=runs/xlnet-large

Run it where the data are, or name them: --config.data.train=... .  Predictions say that there is no
answer where its probability exceeds task.threshold.  XLNet's authors came to 88.6% F1 with the
large model, BERT's to 81.9%.
"""

from ml_collections import ConfigDict

from configs import common as shared
from configs.finetune import common


def get_config(preset: str = "bert") -> ConfigDict:
    """Preset "bert": values of BERT's run_squad.py.  "xlnet": of XLNet's, for eight TPU cores."""
    return shared.choose(preset, {"bert": bert, "xlnet": xlnet})


def bert() -> ConfigDict:
    config = common.base()
    config.epochs = 2.0
    config.data = dict(format="squad", train="train-v2.0.json", dev="dev-v2.0.json", test="")
    # A threshold below 0 is the one that does best on dev, dev/best_f1_thresh.
    config.task = common.task("span", stride=128, max_query=64, max_answer=30, threshold=-1.0)
    config.batches = dict(B=24, L=384, eval_B=32)
    config.optim.lr = 3e-5
    config.train.update(best="dev/best_f1", eval_every=2000, save_every=2000)
    return config


def xlnet() -> ConfigDict:
    config = bert()
    config.task.max_answer = 64
    config.batches.update(B=48, L=512)
    # As in the released run_squad.py, the rate falls by a quarter from each layer to the next.
    config.optim.update(steps=8000, warmup=1000, layer_lr_decay=0.75)
    config.train.update(eval_every=1000, save_every=1000)
    return config
