"""Fine-tunes on RACE (Lai et al. 2017): questions of English examinations, four options each.

    python -m finetune.main --config=configs/finetune/race.py --config.init=runs/xlnet-large \
        --config.data.train=RACE/train --config.data.dev=RACE/dev --config.data.test=RACE/test

Values of XLNet's run_race.py: a batch of 32 questions is 128 rows of 512.  Published accuracy on
the test set: XLNet-large 81.75 (GPT-1 59.0).  For GPT take the values of Radford et al. 2018,
optim.lr=6.25e-5, epochs=3 and task.language_model=0.5.
"""

from ml_collections import ConfigDict

from configs.finetune import common


def get_config() -> ConfigDict:
    config = common.base()
    config.data = dict(format="race", train="RACE/train", dev="RACE/dev", test="RACE/test")
    config.task = common.task("choice", gap="_", options=4)
    config.batches = dict(B=32, L=512, eval_B=32)
    config.optim.update(lr=2e-5, steps=12_000, warmup=1000, weight_decay=0.0, eps=1e-6)
    config.train.update(best="dev/accuracy", eval_every=1000, save_every=1000)
    return config
