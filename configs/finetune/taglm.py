"""TagLM (Peters et al. 2017, arXiv 1705.00108): an RNN tags, a frozen LM's states join it.

    python -m finetune.main --config=configs/finetune/taglm.py:ner --config.init=runs/elmo
    python -m finetune.main --config=configs/finetune/taglm.py:wnut17.none --config.num_seeds=5

Run it where the data are, or name them: --config.data.train=... .  "ner" is CoNLL-2003, "chunk"
CoNLL-2000, "wnut17" names in tweets with the values of "ner".  The language model is any run or
import, ELMo's two directions in the paper; its last states join where the preset says after a dot:

    F1 on test, published   without    input      after layer 1   output
    preset                  .none      .input     .middle         .output
    ner                     90.87 .13  91.55 .21  91.93 .19       91.72 .13
    chunk                   95.00 .08             96.37 .05

Without a dot it is .middle; .none needs no run.  The figures are means and deviations of ten seeds,
91.93 with the development set in training.  The paper's vectors are SENNA's, 50 wide, those here
GloVe's: --config.vectors.path=... names others.

Measured here on WNUT-17, with task.encoder.U=100, task.own_characters=15, hooks.anneal.patience=3,
hooks.anneal.length=2 and GloVe of 100 numbers.  The biLM is configs/elmo.py, 8,000 steps on novels
and WikiText-2 (20 MB): perplexity 66 on held-out text.  F1, means and deviations of three seeds:

    on dev, test    .none               .input              .middle             .output
                    46.5 .2, 31.5 1.3   49.2 1.3, 33.5 1.3  48.7 1.3, 32.8 .7   49.3 1.4, 32.2 1.8

So even a small LM is worth about two and a half points on dev; the places do not differ.

The rate falls to a tenth five evaluations after the best, again five later, and five later it ends;
the paper's first cut is at the best epoch itself, looked up afterwards.  An evaluation is an epoch.
Batches are not the paper's.
"""

import functools

from ml_collections import ConfigDict

from configs import common as shared
from configs.finetune import common, conll2003
from configs.finetune import wnut17 as tweets

JOINS = {"none": (), "input": (0,), "middle": (1,), "output": (2,)}


def get_config(preset: str = "ner") -> ConfigDict:
    """Returns one of "ner", "chunk", "wnut17".

    A place follows a dot, as in "ner.none" and in chunk.input: one of the page's four.
    """
    return shared.choose(preset, PRESETS)


def tagger(examples: ConfigDict, join: str, steps_per_epoch: int) -> ConfigDict:
    """Returns a recipe's examples with the network of the paper's names."""
    config = examples
    # IOBES tells the CRF where a name ends; with one digit for all, numbers share vectors.
    config.task.update(convert_to="iobes", min_count=1, zero_digits=True, own_characters=25)
    config.task.head.update(crf=True, constrained=True, dropout=0.0)
    config.task.encoder = common.encoder(
        "recurrent",
        features=dict(name="backbone", frozen=True),
        join=JOINS[join],
        cell="gru",
        U=300,
        layers=2,
        input_dropout=0.25,
        characters=dict(E=25, cell="gru", U=80, dropout=0.25),
    )
    # Without a language model the recipe itself says how text becomes words.
    if join == "none":
        config.text_format, config.tokens = "words", dict(name="words", split="blank")
    config.batches.lengths = common.LENGTHS
    config.vectors.update(path="glove.6B.50d.txt", tables=("encoder/word_VD",))
    config.optim = common.constant(name="adamw", lr=1e-3, b1=0.9, b2=0.999, eps=1e-8, clip=5.0)
    # The language model is read and never trained, as in the paper.
    config.optim.freeze = "" if join == "none" else "backbone"
    config.epochs = 100.0  # at most: the annealing ends it
    config.hooks = dict(
        anneal=dict(
            name="pretrain.training.anneal",
            metric="dev/f1",
            patience=5,
            factor=0.1,
            cuts=2,
            length=5,
        )
    )
    config.train.update(eval_every=steps_per_epoch, save_every=steps_per_epoch)
    return config


def ner(join: str) -> ConfigDict:
    """Returns CoNLL-2003's recipe."""
    config = conll2003.bert()
    config.batches.B = 64
    return tagger(config, join, 220)


def wnut17(join: str) -> ConfigDict:
    """Returns WNUT-17's recipe, with wider vectors."""
    config = tweets.get_config()
    config.batches.update(B=32, L=64)
    config = tagger(config, join, 107)
    config.vectors.path = "glove.6B.100d.txt"
    return config


def chunk(join: str) -> ConfigDict:
    """Returns CoNLL-2000's recipe: LSTMs, convolved characters, and 1,000 sentences held out."""
    config = conll2003.bert()
    config.data = dict(
        format="conll",
        train="conll2000/train.txt",
        dev="",
        dev_share=0.112,
        test="conll2000/test.txt",
    )
    config.task.scheme = "iob2"
    config.batches.B = 64
    config = tagger(config, join, 124)
    config.task.encoder.update(cell="lstm", U=200, input_dropout=0.5)
    config.task.encoder.characters = dict(E=30, filters=((3, 30),), activation="tanh", dropout=0.5)
    config.task.head.dropout = 0.5
    return config


PRESETS = {
    name + end: functools.partial(recipe, join)
    for name, recipe in {"ner": ner, "chunk": chunk, "wnut17": wnut17}.items()
    for end, join in [("", "middle"), *((f".{join}", join) for join in JOINS)]
}
