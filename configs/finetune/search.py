"""Scores what a search finds, as Meituan's BERT: relevance, entities, the order of a list.

    python -m finetune.main --config=configs/finetune/search.py:joint --config.init=runs/bert-zh
    python -m finetune.main --config=configs/finetune/search.py:lambda --config.init=runs/bert-zh

Run it where the data are, or name files of your own and their columns: --config.data.train=... .
The article ("The exploration and practice of BERT in the core ranking of Meituan search", 2020, in
Chinese) gives no absolute numbers, and neither data nor code:

    preset      what is learned                                           accuracy gained there
    relevance   how well a title answers a query, a class of the pair
    joint       besides, the entities of product titles: each step        +2.19 points
                reads both sets, and the losses are added up
    rows        the same of rows that have both labels: a tag for every
                character of query and title (their figure 5)
    pointwise   the relevance of a query's titles as a number, to order them by
    ranknet     the order of a query's titles, by pairs                   +9.25 points
    lambda      the same, a pair weighs what it is worth in NDCG
    scenes      from end to end with what the user chose before and with      AUC +2.34 points
                numbers of the result; each scene has layers of its own
    numbers     the same without the text: the ranking model before, one of
                whose numbers is the score of a "relevance" run

The data are QBQTC (github.com/CLUEbenchmark/QBQTC: a query, a title, 0, 1 or 2), whose 20,000 pairs
of dev.json are trained on, as the larger file is not given out any more; and product titles with
their entities (allanj/ner_incomplete_annotation).  Published, of 180,000 pairs: BERT-base 71.8% and
a macro F1 of 64.1 on test_public.json, where the commonest class has 63.2%.

Measured here without a pretrained Chinese model, "relevance.scratch" and "joint.scratch", one seed,
epochs=3.0, accuracy and macro F1 on test_public.json after each epoch:

    relevance alone     64.6  32.2    64.6  47.7    64.9  48.3
    with the entities   64.0  28.7    64.8  49.4    66.3  48.4    (theirs: F1 23.2, 28.7, 29.5)

By the best accuracy on dev it is the first epoch of both.  A deviation of 5,000 pairs is 0.7: one
seed of so small a model shows no gain for sure.

From a BERT of that size, pretrained on 5,000 small batches of Chinese text, three seeds of three
epochs (optim.lr=3e-4), the best on dev:

    relevance alone     66.2 +- 0.8  43.3 +- 6.3
    with the entities   65.9 +- 0.7  39.4 +- 3.8    (theirs: F1 39.4 +- 2.7)

So small a model shows no gain of the article's 2.2 points.

QBQTC has one title for most queries: "pointwise", "ranknet" and "lambda" draw seven of other
queries beside it, so these lists are made.  From that BERT, one epoch (optim.lr=3e-4), the last
step, three seeds, on test_public.json, where 76% of the queries have a relevant title:

                 MRR             NDCG@1          NDCG@3
    pointwise    73.08 +- 0.07   71.37 +- 0.14   73.12 +- 0.03
    ranknet      73.19 +- 0.06   71.40 +- 0.11   73.28 +- 0.09
    lambda       73.39 +- 0.04   71.73 +- 0.08   73.50 +- 0.01

"rows" reads lines of {"query", "title", "query_tags", "title_tags", "label"}, of your own, and the
last two a line for each result shown: {"search", "query", "title", "clicked", "price", "distance",
"scene", "history"}, where the history is what the user chose before, with blanks between.  In two
stages, as it ran before:

    python -m finetune.predict --workdir=runs/search-relevance --fields='{"label": ""}' \\
        log.jsonl scores.jsonl
    python -m finetune.main --config=configs/finetune/search.py:numbers \\
        --config.init=runs/search-relevance --config.data.train.scores=scores.jsonl
"""

import functools
from typing import Any

from ml_collections import ConfigDict

from configs import common as shared
from configs.finetune import common


def get_config(preset: str = "joint") -> ConfigDict:
    """Returns one of "relevance", "joint", "rows", "pointwise", "ranknet", "lambda",
    "scenes", "numbers".

    Without a pretrained model "relevance.scratch", "joint.scratch".
    """
    return shared.choose(preset, PRESETS)


RELEVANCE: dict[str, Any] = dict(name="classify", metrics=("accuracy", "macro_f1"))
ENTITIES: dict[str, Any] = dict(name="tag", scheme="iob2", metrics=("f1", "precision", "recall"))
# A tenth of what there is to train on: the test set chooses nothing.
QBQTC = dict(kind="jsonl", train="dev.json", test="test_public.json", dev_share=0.1)


def base() -> ConfigDict:
    """Returns the values of QBQTC's baseline, but for the epochs: it has 7."""
    config = common.base()
    config.batches = dict(B=64, L=52, eval_B=100)
    config.train.update(eval_every=280, save_every=280)  # an epoch of 18,000 pairs
    return config


def pairs() -> dict:
    data = dict(format="table", texts=("query", "title"), label="label", **QBQTC)
    return dict(data=data, task=common.task(**RELEVANCE), weight=1.0)


def titles() -> dict:
    files = {split: f"{split}.txt" for split in ("train", "dev", "test")}
    data = dict(format="conll", **files)
    return dict(data=data, task=common.task(**ENTITIES), weight=1.0, batches=dict(L=64))


def relevance() -> ConfigDict:
    config, one = base(), pairs()
    config.data, config.task = one["data"], one["task"]
    config.train.best = "dev/accuracy"
    return config


def joint() -> ConfigDict:
    """Returns relevance and entities, of two sets."""
    config = base()
    common.mix(config, "all", dict(relevance=pairs(), entities=titles()))
    # Entities are learned for the sake of relevance.
    config.train.best = "relevance/dev/accuracy"
    return config


def rows() -> ConfigDict:
    """Returns relevance and entities of the same rows."""
    config = base()
    config.data = dict(
        format="tagged_texts",
        kind="jsonl",
        texts=("query", "title"),
        tags=("query_tags", "title_tags"),
        units="characters",  # Chinese has no blanks between words
        label="label",
        train="train.jsonl",
        test="",
        dev_share=0.1,
    )
    parts = dict(relevance=RELEVANCE | dict(weight=1.0), entities=ENTITIES | dict(weight=1.0))
    config.task = common.task("joint", parts=parts)
    config.batches.update(L=64)
    config.train.best = "dev/relevance_accuracy"
    return config


LISTS: dict[str, Any] = dict(
    options=8,  # candidates of a row: seven beside a relevant one
    rows=0,
    loss=dict(name="ndcg_loss2_plus", margin=1.0, sigma=1.0, mu=10.0),
    ks=(1, 3),
    gain="exponential",  # 2^relevance - 1, as the losses weigh it
)


def rank(loss: str) -> ConfigDict:
    """Returns the order of a query's titles, by a loss of `modules.losses.ranking`."""
    config = base()
    config.data = dict(
        format="ranking",
        pairs=True,
        query="query",
        candidates="title",
        relevance="label",
        random_negatives=7,
        **QBQTC,
    )
    config.task = common.task("rank", **LISTS)
    config.task.loss.name = loss
    config.batches = dict(B=8, L=52, eval_B=16)
    config.train.best = "dev/ndcg@3"
    return config


def scenes(text: bool) -> ConfigDict:
    """Returns the order of a search's results by all that is known of them."""
    config = base()
    config.data = dict(
        format="clicks",
        lists=True,
        query="query",
        texts=("title",),
        clicked="clicked",
        search="search",
        features=("price", "distance"),
        scene="scene",
        history="history",
        train=dict(path="log.jsonl", scores=""),
        test="",
        dev_share=0.1,
    )
    config.task = common.task("scenes", history=20, min_count=2, **LISTS)
    config.task.head.text = text
    config.batches = dict(B=8, L=52, eval_B=16)
    config.train.best = "dev/ndcg@3"
    if not text:  # nothing in it is pretrained
        config.optim.lr = 1e-3
    return config


def from_scratch(config: ConfigDict) -> ConfigDict:
    """Returns the recipe with a BERT of four layers, 128 wide, from random weights."""
    config.text_format = "bert"
    # The vocabulary is that of BERT's Chinese release.
    config.tokens = dict(name="wordpiece", model="vocab.txt", V=21128, lower=True)
    config.model = dict(
        name="transformer",
        V=None,
        D=128,
        H=2,
        K=64,
        N=4,
        F=512,
        L=64,
        S=2,
        normed_embedding=True,
        pooler=True,
        epsilon=1e-12,
        init_scale=0.05,
    )
    config.optim.lr = 5e-4
    return config


PRESETS = {
    "relevance.scratch": lambda: from_scratch(relevance()),
    "joint.scratch": lambda: from_scratch(joint()),
    "relevance": relevance,
    "joint": joint,
    "rows": rows,
    "pointwise": functools.partial(rank, "squared"),
    "ranknet": functools.partial(rank, "logistic"),
    "lambda": functools.partial(rank, "ndcg_loss2_plus"),
    "scenes": functools.partial(scenes, True),
    "numbers": functools.partial(scenes, False),
}
