"""ULMFiT's second stage (Howard & Ruder 2018, arXiv 1801.06146): tunes a LM to a task's text.

    python -m pretrain.main --config=configs/ulmfit.py:trec --config.init=runs/awd_lstm

Run it where the task's files are, or name them: --config.corpus.data.path=... .  The run that it
goes on from is an AWD-LSTM, in the paper one of WikiText-103's 103 million words.  It is tuned to
the texts that `configs/finetune/ulmfit.py` then classifies, without their labels.

    preset     text                             words, about   vocabulary   steps, 15 epochs
    trec       questions                           61,000         3,600         200
    reviews    1,600 of films                     435,000        13,500       1,450
    ag_news    the beginnings of 120,000 news   5,400,000        60,000      18,000
    imdb       25,000 reviews of films          6,700,000        60,000      22,000

The vocabulary is the text's own; --config.init_tokens=run --config.corpus.tokens.extend=1000 keeps
all words of the run instead, and adds the text's.

A ".script" at a preset's end takes the released code's values: a rate for each group of layers in
the place of one that falls by 2.6 from layer to layer, and Adam's first beta.  For the second
model, which reads backwards, --config.batches.backward=True --config.text_format=ulmfit_backward,
as in the run that it goes on from.
"""

import functools

from ml_collections import ConfigDict

from configs import awd_lstm, common

# Where the texts are, the commonest words (of the first two texts those that occur twice), and the
# steps of 15 epochs, of 64 rows of about 68 words.  The paper tuned 15 epochs on small data; the
# released code takes 25, and 50 on IMDb.
ROWS: dict = dict(header=False, label=0)
TEXTS: dict[str, tuple[dict, int, int]] = {
    "trec": (dict(path="TREC.train", kind="lines", encoding="latin-1"), 3_600, 200),
    "reviews": (dict(path="imdb.train.gz", kind="tsv", texts=(1,), **ROWS), 13_500, 1_450),
    "ag_news": (dict(path="train.csv", texts=(1, 2), **ROWS), 60_000, 18_000),
    "imdb": (dict(path="train.csv", texts=(1,), **ROWS), 60_000, 22_000),
}


def get_config(preset: str = "trec") -> ConfigDict:
    """Returns one of "trec", "reviews", "ag_news", "imdb".

    Or, with the released code's values, "trec.script", "reviews.script", "ag_news.script",
    "imdb.script".
    """
    return common.choose(preset, PRESETS)


def paper(data: dict, types: int, steps: int) -> ConfigDict:
    """Returns the paper's recipe for a task's texts."""
    config = awd_lstm.wikitext103()
    # A word that the run knew keeps its row, the others begin as the mean.
    config.init_tokens = "recipe"
    config.corpus = common.corpus(
        source="finetune.datasets.corpus",
        data=dict(format="table", **data),
        documents="file",
        sentences="line",
        held_out=0.1,
        tokens=dict(name="words", split="blank", lower=False, types=types, extend=0),
    )
    config.model.V = config.corpus.tokens.get_ref("types")
    config.evals.held_out = dict(split="held_out")
    config.execution.loss_chunks = 4
    config.optim.update(steps=steps, layer_lr_decay=1 / 2.6)
    # The last weights count: the rate has fallen by then.
    config.train.update(log_every=20, eval_every=steps // 5, save_every=steps // 5, best="")
    return config


def script(data: dict, types: int, steps: int) -> ConfigDict:
    """Returns the recipe of the released code (fastai, courses/dl2/imdb_scripts/finetune_lm.py)."""
    config = paper(data, types, steps)
    drop_mult = 0.7  # the argument of that name: 0.7 to 1, the less text the more
    config.model.update(
        dropouti=0.25 * drop_mult,
        wdrop=0.2 * drop_mult,
        dropoute=0.02 * drop_mult,
        dropouth=0.15 * drop_mult,
    )
    config.objective.dropout = 0.1 * drop_mult
    config.optim.update(b1=0.8, layer_lr_decay=1.0)
    config.optim.rates = {
        "backbone/layer_0": 1 / 6,
        "backbone/layer_1": 1 / 3,
        "backbone/token_VD": 1 / 2,
        "head": 1 / 2,
    }
    return config


PRESETS = {
    name + end: functools.partial(recipe, *text)
    for name, text in TEXTS.items()
    for end, recipe in (("", paper), (".script", script))
}
