"""Trains recurrent networks on SemEval-2010 task 8: what are two directions worth, and gates?

    python -m finetune.main --config=configs/finetune/recurrent.py:blstm
    python -m finetune.main --config=configs/finetune/recurrent.py:gru

Run it where the data are, or name them: --config.data.train=... .  Words with GloVe's vectors, four
of which mark the two words in question; the highest of the states, number by number, is classified.
task.head.pool=last takes the last state instead, model.reset_gate=before the GRU of the paper.

    preset            network                                                   F1, published
    rnn, gru, lstm    left to right (GRU: Cho et al. 2014)
    brnn              Zhang & Wang 2015, arXiv 1508.01006                       82.5
    blstm             Zhang et al. 2015, Y15-1009; with lexical features 84.3   82.7

Ours, blstm, with GloVe's 100 dimensions for the 50,000 commonest words and 10 epochs: 79.1 +- 0.7
of five seeds, a PyTorch twin 79.2 +- 0.4.  An epoch takes 22 seconds on one core.

Sizes, dropout, batches and AdaDelta are those of Zhou et al. 2016 (`semeval2010.py:att_blstm`); the
two papers' own networks are larger.  Adam with lr=1e-3 and 32 rows a batch came to 76.1 +- 0.8.
"""

import functools

from ml_collections import ConfigDict

from configs import common as shared
from configs.finetune import semeval2010


def get_config(preset: str = "blstm") -> ConfigDict:
    """Returns one of "rnn", "gru", "lstm", "brnn", "blstm"."""
    return shared.choose(preset, PRESETS)


def network(cell: str, Z: int) -> ConfigDict:
    # Vectors and cells of its sizes, those of Zhou et al. 2016: the two papers' own are larger.
    config = semeval2010.att_blstm()
    config.model.update(cell=cell, Z=Z, reset_gate="after")
    config.task.head.pool = "max"
    return config


PRESETS = {
    "rnn": functools.partial(network, "rnn", 1),
    "gru": functools.partial(network, "gru", 1),
    "lstm": functools.partial(network, "lstm", 1),
    "brnn": functools.partial(network, "rnn", 2),
    "blstm": functools.partial(network, "lstm", 2),
}
