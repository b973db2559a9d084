"""Convolutional networks for sentence classification (Kim 2014, arXiv 1408.5882).

    python -m finetune.main --config=configs/finetune/textcnn.py:trec
    python -m finetune.main --config=configs/finetune/textcnn.py:mr.static --config.data.fold=3

Run it where the data are, or name them: --config.data.train=... .  A variant follows the set's
name and a dot, "nonstatic" if there is none:

    rand           the vectors are drawn, and learned, 300 wide
    static         word2vec's 300-dimensional vectors of Google News, which stay as they are
    nonstatic      the same, and learned
    multichannel   both, added up under each filter

Other vectors are --config.vectors.path=glove.6B.100d.txt or the like.  MR and Subj have no test
set: ten folds are drawn, a tenth of what is left is the development set, and mean and deviation
over the folds are written to stats.json; data.fold names one of them.  TREC's development set is
drawn, too.  SST's networks learn from the phrases of the trees and are tested on sentences.

    accuracy, published              MR     SST-1   SST-2   Subj    TREC
    rand                             76.1   45.0    82.7    89.6    91.2
    static                           81.0   45.5    86.8    93.0    92.8
    nonstatic                        81.5   48.0    87.2    93.4    93.6
    multichannel                     81.1   47.4    88.1    93.2    92.2

Ours, with GloVe's 100 dimensions for the 50,000 commonest words, and in brackets a PyTorch twin on
the same rows and vectors: mr 77.1 +- 1.6 (77.3 +- 1.1), mr.static 75.4 +- 1.5 and mr.rand 74.6 +-
1.1 of ten folds, 10 epochs; subj 91.1 +- 1.2 (91.2 +- 0.9) of ten folds, 5 epochs; of five seeds
trec 92.2 +- 0.7 (92.6 +- 1.2), 20 epochs, sst2 84.1 +- 0.5 (84.0 +- 0.4), 8 epochs, and sst1 43.5
+- 0.8, 3 epochs.  Three epochs of sst2 come to 82.5 +- 0.9 (83.1 +- 0.9).  On one core of an AMD
EPYC an epoch takes 35 to 78 seconds of sst2, 4 to 17 of the others.
"""

import functools
from collections.abc import Callable

from ml_collections import ConfigDict
from ml_collections.config_dict import placeholder

from configs import common as shared
from configs.finetune import common

WORD2VEC = "GoogleNews-vectors-negative300.bin"
VARIANTS = {
    "rand": (("learned",), 300, ""),
    "static": (("fixed",), None, WORD2VEC),
    "nonstatic": (("learned",), None, WORD2VEC),
    "multichannel": (("learned", "fixed"), None, WORD2VEC),
}
# Closer than elsewhere: fifty rows are cut to the longest, and a network so small compiles quickly.
LENGTHS = tuple(range(8, 61, 4))
NAMES = {"learned": "backbone/token_VD", "fixed": "backbone/fixed_VD"}


def get_config(preset: str = "trec") -> ConfigDict:
    """Returns one of "mr", "sst1", "sst2", "subj", "trec".

    A variant follows a dot: "trec.rand", "trec.static", "trec.nonstatic", "trec.multichannel".
    """
    return shared.choose(preset, PRESETS)


def classify(examples: Callable[[], ConfigDict], variant: str) -> ConfigDict:
    """Returns the recipe of a set of examples with the network that learns them."""
    config = examples()
    tables, D, path = VARIANTS[variant]
    config.text_format = "words"
    config.tokens = dict(name="words", split="blank", lower=True)
    config.model = dict(name="text_cnn", V=None, D=D, tables=tables, dropout=0.0)
    # Words without a vector are drawn within 0.25, which gives them the variance of word2vec's;
    # vectors.match_variance=True gives that of any other.
    config.vectors.update(path=path, scale=0.25, tables=tuple(NAMES[x] for x in tables))
    config.task = common.task("classify", metrics=("accuracy",))
    # The released code begins with zeros in the softmax.
    config.task.head.update(pool="max", summary="none", dropout=0.5, scale=0.0)
    config.epochs = 25.0
    config.batches.update(B=50, eval_B=64, lengths=LENGTHS)
    # The paper's dropout leaves the scores' weights to be halved in tests, ours doubles what stays
    # in training: its limit of 3 on the norm of a class's weights is 1.5 here.
    config.optim = common.adadelta(rho=0.95, max_norm={"head/w_DC": 1.5})
    config.train.best = "dev/accuracy"
    return config


def lines(L: int, steps_per_epoch: int, **data) -> ConfigDict:
    """Returns a recipe of a set of "label text" lines, that is evaluated every epoch."""
    config = common.base()
    config.data = dict(
        format="table", kind="lines", encoding="latin-1", dev="", dev_share=0.1, **data
    )
    config.batches = dict(L=L)
    config.train.update(eval_every=steps_per_epoch, save_every=steps_per_epoch)
    return config


def folds(train: str, L: int, steps_per_epoch: int) -> ConfigDict:
    """Returns a recipe of ten jobs, one for each fold."""
    return lines(L, steps_per_epoch, train=train, folds=10, fold=placeholder(int))


def trees(classes: int) -> ConfigDict:
    """Returns a recipe of the Stanford Sentiment Treebank, with its phrases to learn from."""
    config = common.base()
    config.data = dict(
        format="trees",
        classes=classes,
        train=dict(path="trees/train.txt", phrases=True),
        dev="trees/dev.txt",
        test="trees/test.txt",
    )
    config.batches = dict(L=56)
    config.train.update(eval_every=500, save_every=500)
    return config


SETS = {
    "mr": lambda: folds("rt-polarity.all", 60, 173),
    "sst1": lambda: trees(5),
    "sst2": lambda: trees(2),
    "subj": lambda: folds("subj.all", 128, 162),
    "trec": lambda: lines(40, 98, train="TREC.train", test="TREC.test", until=":"),
}
PRESETS = {
    name + end: functools.partial(classify, examples, variant)
    for name, examples in SETS.items()
    for end, variant in [("", "nonstatic"), *((f".{variant}", variant) for variant in VARIANTS)]
}
