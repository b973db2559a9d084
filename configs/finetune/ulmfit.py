"""ULMFiT's third stage (Howard & Ruder 2018, arXiv 1801.06146): a tuned LM becomes a classifier.

    python -m finetune.main --config=configs/finetune/ulmfit.py:trec --config.init=runs/ulmfit-trec

Run it where the data are, or name them: --config.data.train=... .  The run that it goes on from is
one of `configs/ulmfit.py`, tuned to the task's text, or of the AWD-LSTM itself.

A ".script" at a preset's end takes the released code's values: head alone, top layer too, then all
at once.

    error, published                      trec    ag_news   imdb
    both directions, WikiText-103's LM     3.6%     5.01%    4.6%

One direction from a LM of 8 million words (docs/guides/ulmfit.md) errs in 7.1% of TREC's questions,
and from random weights in 10.7%, with one rate for all layers; with the recipe's rates in 12.9%.

For both directions a second model is trained with --config.text_format=ulmfit_backward on a LM that
reads backwards; `finetune.predict --with=` averages the two.
"""

import functools

from ml_collections import ConfigDict

from configs import common as shared
from configs.finetune import common, trec


def get_config(preset: str = "trec") -> ConfigDict:
    """Returns one of "trec", "reviews", "ag_news", "imdb".

    Or, with the released code's values, "trec.script", "reviews.script", "ag_news.script",
    "imdb.script".
    """
    return shared.choose(preset, PRESETS)


def paper(examples: ConfigDict) -> ConfigDict:
    """Returns the paper's recipe for these examples."""
    config = examples
    config.text_format = "ulmfit"
    config.model = dict(dropoute=0.05, dropouti=0.4, dropouth=0.3, wdrop=0.5)
    config.task = common.task("classify", metrics=("accuracy",))
    # Long texts are read 70 words at a time from the state that those before left, and their last
    # 1400 states are pooled.
    config.task.encoder = common.encoder("backbone", window=70, ar=2.0, tar=1.0)
    config.task.head = dict(
        pool="concat",
        pool_last=1400,
        summary="batch_norm",
        U=50,
        hidden_dropout=0.4,
        dropout=0.1,
    )
    config.epochs = 15.0
    config.optim = dict(
        name="adamw",
        lr=0.01,
        steps=0,
        decay="slanted",
        stlr_cut_frac=0.1,
        stlr_ratio=32.0,
        # Layers are unfrozen one after the other from the top, one more each epoch, and each learns
        # 2.6 times slower than the one above.
        stages=(1, 1, 1, 1, 11),  # in epochs: the head, three LSTMs, and the words' vectors, too
        chain_thaw=False,
        freeze="",
        warmup=0,
        b1=0.7,
        b2=0.99,
        eps=1e-8,
        l2=1e-6,
        decay_all=True,  # as PyTorch's Adam
        clip=25.0,
        layer_lr_decay=1 / 2.6,
        rates={"backbone": 1 / 2.6},  # the head is a layer, too
    )
    return config


def script(examples: ConfigDict) -> ConfigDict:
    """Returns the recipe of the released code (fastai, courses/dl2/imdb_scripts/train_clas.py)."""
    config = paper(examples)
    config.optim.update(b1=0.8, stlr_ratio=8.0, stages=(1, 1, 13))
    with config.optim.ignore_type():
        config.optim.stlr_cut_frac = (1 / 3, 1 / 3, 1 / 8)
    return config


def questions() -> ConfigDict:
    """Returns TREC's examples; the last step counts."""
    config = trec.tuned()
    config.batches = dict(B=64, L=48, eval_B=64, lengths=(24, 32))
    return evaluate_every(config, 86)


def table(L: int, steps_per_epoch: int, **data) -> ConfigDict:
    """Returns a recipe of labelled rows without a header."""
    config = common.base()
    config.data = dict(format="table", header=False, label=0, dev="", **data)
    config.batches = dict(B=64, L=L, eval_B=64, lengths=(70, 140, 280, 560, 1120))
    return evaluate_every(config, steps_per_epoch)


def evaluate_every(config: ConfigDict, steps: int) -> ConfigDict:
    """Sets how often a recipe is evaluated and saved, and returns it."""
    config.train.update(eval_every=steps, save_every=steps)
    return config


def reviews() -> ConfigDict:
    """Returns reviews of films, of which a tenth is held out to choose the weights by."""
    files = dict(train="imdb.train.gz", test="imdb.test.gz")
    config = table(1400, 23, kind="tsv", texts=(1,), dev_share=0.1, **files)
    config.train.best = "dev/accuracy"
    return config


FILES = dict(train="train.csv", test="test.csv")
EXAMPLES = {
    "trec": questions,
    "reviews": reviews,
    "ag_news": lambda: table(280, 1875, texts=(1, 2), **FILES),
    "imdb": lambda: table(2100, 391, texts=(1,), **FILES),
}
PRESETS = {
    name + end: functools.partial(lambda recipe, examples: recipe(examples()), recipe, examples)
    for name, examples in EXAMPLES.items()
    for end, recipe in (("", paper), (".script", script))
}
