"""Turns several data sets into one corpus: their texts alone, a document each.

    --config.corpus.source=finetune.datasets.corpora
    --config.corpus.data.sst1.path=trees/train.txt --config.corpus.data.subj.path=subj.all

Liu, Qiu & Huang 2016 (arXiv 1605.05101) train a language model on the texts of all tasks, before
these share it.
"""

import itertools
from typing import Any

from finetune.datasets import corpus
from pretrain.data.corpus.sources import Source


def find_source(**sets: dict[str, Any]) -> Source:
    """Finds the texts of data sets, each as `finetune.datasets.corpus` finds one.

    Args:
        sets: the name of each -> the fields of `corpus.find_source`.

    Raises:
        UserError: as `corpus.find_source`.
    """
    sources = [corpus.find_source(**fields) for fields in sets.values()]
    return Source(
        "-".join(sets),
        [path for source in sources for path in source.inputs],
        lambda: itertools.chain.from_iterable(source.read() for source in sources),
    )
