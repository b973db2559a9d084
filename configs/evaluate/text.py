"""Evaluates a run on any text, as it stands: every number of the run's objective on all of it.

    python -m pretrain.evaluate --workdir=runs/gpt2-mini --config=configs/evaluate/text.py
        --config.corpus.source='text:my/*.txt'

What is not set is as in the run's own recipe.  No number depends on the batch size, but where the
run hides tokens by chance (BERT, XLNet) or goes on from row to row (XLNet, ELMo, the AWD-LSTM):
there B decides what is drawn and where memory or state begin.  As many rows as the recipe's `evals`
have give the numbers of its own evaluations.

A run that goes on from batch to batch, as the AWD-LSTM, is also measured with a neural cache (Grave
et al. 2017) by --config.objective.cache_window=3785, the words that it looks back over; cache_theta
and cache_share are the released code's for WikiText-2, 0.6625 and 0.1279.
"""

from ml_collections import ConfigDict, config_dict


def get_config() -> ConfigDict:
    """Returns the recipe; `source` is to be set."""
    config = ConfigDict()
    config.corpus = dict(
        source="text:corpus/*.txt",
        documents=config_dict.placeholder(str),
        sentences=config_dict.placeholder(str),
        detokenise="",
        text_key="text",
        tfds_split="train",
        tfds_dir="",
        cache="data",
    )
    config.batches = dict(B=16, L=config_dict.placeholder(int))
    config.objective = dict(
        cache_window=config_dict.placeholder(int),
        cache_theta=config_dict.placeholder(float),
        cache_share=config_dict.placeholder(float),
    )
    return config
