"""Fine-tunes on SST-2 (Socher et al. 2013): does a sentence of a film review praise or blame?

    python -m finetune.main --config=configs/finetune/sst2.py --config.init=runs/bert-base
    python -m finetune.main --config=configs/finetune/sst2.py:scratch

Run it where the data are, or name them: --config.data.train=... .  Lines as "1 a gripping movie",
6,920 whole sentences to train on; the 67,349 sentences and phrases of GLUE are of glue.py:sst2.
Values of Devlin et al. 2019, appendix A.3.  "scratch" needs no pretrained model: the commonest
words get vectors, and an LSTM reads them from either end.  Kim's CNN (2014) came to 82.7% so, with
phrases to learn from, too.

    on the test set, by the best on dev
    scratch                                                                          81.8%
    MiniLM, six layers, optim.lr=1e-4 epochs=2 batches.L=48                          88.7%
"""

from ml_collections import ConfigDict

from configs import common as shared
from configs.finetune import common


def get_config(preset: str = "tuned") -> ConfigDict:
    """Returns one of "tuned", "scratch"."""
    return shared.choose(preset, {"tuned": tuned, "scratch": scratch})


def tuned() -> ConfigDict:
    config = common.base()
    config.data = dict(
        format="table",
        kind="lines",
        encoding="utf-8",
        train="stsa.binary.train",
        dev="stsa.binary.dev",
        test="stsa.binary.test",
    )
    config.task = common.task("classify", metrics=("accuracy",))
    config.batches = dict(B=32, L=64, eval_B=64)
    config.train.best = "dev/accuracy"
    return config


def scratch() -> ConfigDict:
    return from_scratch(tuned())


def from_scratch(config: ConfigDict) -> ConfigDict:
    """Returns the recipe with a model of its own: word vectors, an LSTM either way, their mean."""
    config.text_format = "elmo"
    config.tokens = dict(name="words", lower=True, types=8000)
    config.model = dict(name="elmo", inputs="words", V=None, D=300, U=128, N=1, dropout=0.5)
    config.task.head.update(pool="mean", dropout=0.5)
    config.epochs = 6.0
    config.optim.update(lr=2e-3, warmup=0.0)
    return config
