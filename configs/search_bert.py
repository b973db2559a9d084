"""Goes on pretraining BERT on what a search shows: query, title, category, and was it clicked?

    python -m pretrain.main --config=configs/search_bert.py --config.init=runs/bert-zh

Meituan's BERT for search ("The exploration and practice of BERT in the core ranking of Meituan
search", 2020, in Chinese) reads rows of three texts in three kinds of segments, and predicts
masked tokens and, in the place of the next sentence, whether the result was clicked.  It gained .56
points of accuracy so, of relevance.  The article gives no sizes of data or steps.

log.jsonl, of your own, has a line for each result that was shown: "search", which tells searches
apart, "query", "title", "category" and "clicked".  What was passed over above a click counts as not
clicked, and at most four such for each click are read.  --config.corpus.data.* names other columns.

    chinese   goes on from BERT's Chinese model: its third kind of segment is new
    mini      from scratch, 4 layers, 128 wide: of a vocabulary that is learned, on two CPU cores
"""

from ml_collections import ConfigDict

from configs import bert, common


def get_config(preset: str = "chinese") -> ConfigDict:
    """Returns one of "chinese", "mini"."""
    return common.choose(preset, {"chinese": chinese, "mini": mini})


def chinese() -> ConfigDict:
    """Returns the recipe of BERT's Chinese model."""
    config = read_clicks(bert.get_config("base_chinese"), L=96)
    config.optim.update(lr=5e-5, steps=20_000, warmup=1_000, join="after")
    return config


def mini() -> ConfigDict:
    """Returns a recipe for two CPU cores."""
    config = read_clicks(bert.get_config("mini"), L=64)
    config.corpus.tokens.V = 6000  # some thousands are characters
    config.batches.B = 32
    return config


def read_clicks(config: ConfigDict, L: int) -> ConfigDict:
    """Replaces the text of a recipe of BERT by a log of searches."""
    config.corpus.update(
        source="finetune.datasets.corpus",
        data=dict(
            format="clicks",
            path="log.jsonl",
            query="query",
            texts=("title", "category"),
            clicked="clicked",
            search="search",
            position="",
            negatives="skip_above",
            ratio=4,
            with_label=True,
        ),
        documents="file",
        sentences="line",
        held_out=0.02,
    )
    config.model.S = 3  # query, title, category
    config.model.L = max(config.model.L, L)
    config.text_format = "bert_three"
    config.batches = dict(name="clicks", B=256, L=L, texts=3)
    del config.first_phase
    config.evals = dict(held_out=dict(split="held_out"))
    config.objective.nsp = True
    return config
