"""Tags CoNLL-2003 (Tjong Kim Sang and De Meulder 2003): names in the news, English.

    python -m finetune.main --config=configs/finetune/conll2003.py --config.init=runs/bert-base
    python -m finetune.main --config=configs/finetune/conll2003.py:elmo --config.init=runs/elmo

    preset   who                                     test F1 (published)
    bert     Devlin et al. 2019: base, large           92.4, 92.8
    elmo     Peters et al. 2018: LSTM and CRF on it    92.22

BERT's had the whole document around each sentence, which these rows have not: expect one point
less.  ELMo's also read GloVe vectors and characters of the task's own.
"""

from ml_collections import ConfigDict

from configs import common as shared
from configs.finetune import common


def get_config(preset: str = "bert") -> ConfigDict:
    """Returns one of "bert", "elmo"."""
    return shared.choose(preset, {"bert": bert, "elmo": elmo})


def bert() -> ConfigDict:
    """Trains the backbone, too, and tells a tag from a word's first piece."""
    config = common.base()
    config.data = dict(format="conll", train="eng.train", dev="eng.testa", test="eng.testb")
    # The original files, whose tags are IOB1; "iob2" is for those that were converted.
    config.task = common.task("tag", scheme="iob1", convert_to="iob2", piece="first")
    config.batches = dict(B=32, L=128, eval_B=64)
    config.optim.lr = 5e-5
    config.train.best = "dev/f1"
    return config


def elmo() -> ConfigDict:
    """Freezes the backbone: an LSTM reads it beside words of its own, and a CRF tells the tags."""
    config = bert()
    config.task.convert_to = "iobes"
    config.task.min_count = 2  # words that occur so often have vectors of their own
    config.task.head.update(crf=True, constrained=True, dropout=0.5)
    config.task.encoder = common.encoder(
        "recurrent",
        # The penalty keeps the weights of the layers near the plain average.
        features=dict(name="scalar_mix", frozen=True, dropout=0.5, l2=0.1),
        U=200,
        layers=2,
        dropout=0.5,
        word_D=50,
        word_dropout=0.5,
    )
    config.epochs, config.batches.B = 30.0, 64
    config.optim.update(lr=1e-3, warmup=0, decay="constant", weight_decay=0.0, clip=5.0)
    config.optim.freeze = "backbone"
    config.train.stop_after = 25
    return config
