"""SST-2 (Socher et al. 2013): does a sentence of a film review praise or blame?

    python -m finetune.main --config=configs/finetune/sst2.py --config.init=runs/bert-base

Values of Devlin et al. 2019, appendix A.3.
"""

from ml_collections import ConfigDict

from configs.finetune import common


def get_config() -> ConfigDict:
    config = common.base()
    config.data = dict(
        format="table", kind="lines",
        train="stsa.binary.train", dev="stsa.binary.dev", test="stsa.binary.test",
    )  # fmt: skip
    config.task = dict(name="classify", metrics=("accuracy",))
    config.batches = dict(B=32, L=64, eval_B=64)
    config.train.best = "dev/accuracy"
    return config
