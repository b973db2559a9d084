"""Fine-tunes on SemEval-2010 task 8 (Hendrickx et al. 2010): how are two marked words related?

    python -m finetune.main --config=configs/finetune/semeval2010.py --config.init=runs/bert-base
    python -m finetune.main --config=configs/finetune/semeval2010.py:att_blstm

Run it where the data are, or name them: --config.data.train=... .  The words are told by marks
around them, as in "The $ kitchen $ is the last renovated part of the # house # .", and the relation
by the state of the whole; relation_f1 is the official score: the mean F1 of nine relations, the
direction counting.  There is no development set, and the last step counts.  Values and marks of
Wu and He 2019, who came to 89.25 with the words' own states besides.  MiniLM, six layers,
optim.lr=1e-4 epochs=3 batches.L=56: 81.1.

"att_blstm" needs no pretrained model: BLSTM and attention of Zhou et al. 2016 (P16-2034) with their
100-dimensional GloVe vectors, AdaDelta, and 800 sentences as a development set; 84.0 published.
Ours, with the vectors of the 50,000 commonest words and 10 epochs: 80.4 +- 0.2 of five seeds,
a PyTorch twin 80.4 +- 0.3.  A seed takes 5 minutes on one core.
"""

from ml_collections import ConfigDict

from configs import common as shared
from configs.finetune import common


def get_config(preset: str = "tuned") -> ConfigDict:
    """Returns one of "tuned", "att_blstm"."""
    return shared.choose(preset, {"tuned": tuned, "att_blstm": att_blstm})


def tuned() -> ConfigDict:
    config = common.base()
    config.data = dict(
        format="semeval2010",
        marks=("$ ", " $", "# ", " #"),
        train="TRAIN_FILE.TXT",
        dev="",  # the task has none
        test="TEST_FILE_FULL.TXT",
    )
    config.task = common.task("classify", metrics=("accuracy", "relation_f1"))
    config.epochs = 5.0
    config.batches = dict(B=16, L=128, eval_B=64)
    config.train.update(eval_every=500)
    return config


def from_scratch() -> ConfigDict:
    """Returns the recipe of a network that reads words, of which four mark the two in question."""
    config = tuned()
    # 800 sentences are held out, as many as the paper did.
    config.data.update(marks=(" e1begin ", " e1end ", " e2begin ", " e2end "), dev_share=0.1)
    config.text_format = "words"
    config.tokens = dict(name="words", lower=True)
    config.vectors.path = "glove.6B.100d.txt"
    config.task.head.update(summary="none", dropout=0.5)
    config.batches.update(B=10, L=104, lengths=common.LENGTHS)
    config.epochs = 20.0
    config.train.update(best="dev/relation_f1", eval_every=720, save_every=720)
    return config


def att_blstm() -> ConfigDict:
    """Adds up the states of two LSTMs, and averages them by attention."""
    config = from_scratch()
    config.model = dict(
        name="recurrent",
        V=None,
        D=None,
        U=100,
        N=1,
        Z=2,
        cell="lstm",
        merge="sum",
        dropout=0.3,
        rnn_dropout=0.3,
        rnn_dropout_at="output",
    )
    config.task.head.pool = "tanh_attention"
    config.optim = common.adadelta(l2=1e-5)
    return config
