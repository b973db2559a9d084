"""Corpora of chosen sizes, and how BERT's own code cuts a pair, for the tests of pairs."""

import itertools
import types

import numpy as np

from pretrain.data import batches
from pretrain.data.batches import pairs
from pretrain.data.batches.shuffling import make_rng

CLS, SEP, PAD, EOD = 3, 4, 5, 7


def build(corpus, split="train", **fields):
    """Builds small pairs of a prepared corpus."""
    return batches.build("pairs", corpus, split=split, **{"B": 8, "L": 96} | fields)


def build_corpus(*documents):
    """Builds a corpus of documents, each a list of the sizes of its sentences."""
    sizes = [size for document in documents for size in (*document[:-1], document[-1] + 1)]
    begins = np.cumsum([0, *sizes])
    ends = np.cumsum([0, *(len(document) for document in documents)])
    tokens = 10 + np.arange(begins[-1])
    tokens[begins[ends[1:]] - 1] = EOD
    special = {"cls": CLS, "sep": SEP, "pad": PAD}
    tokenizer = types.SimpleNamespace(special=special, word_start_V=np.ones(10 + len(tokens), bool))
    return types.SimpleNamespace(
        tokens=tokens, documents=begins[ends], sentences=begins, tokenizer=tokenizer
    )


def bind_pairs(corpus, shuffle=True, **fields):
    """Binds pairs to all documents of a corpus of `build_corpus`."""
    layout = pairs.BatchLayout(**{"B": 1, **fields})
    return layout.bind(corpus, np.arange(len(corpus.documents) - 1), shuffle=shuffle)


def sample(layout, epoch=0):
    """Samples the rows of an epoch before they are cut to the room they have."""
    return layout.sampler.sample(make_rng(layout.seed, pairs.INSTANCES, epoch))


def sentences_of(corpus, documents):
    """Lists the spans of the sentences of each document, without its <eod>."""
    spans = []
    for document in documents:
        begin, end = corpus.documents[document : document + 2]
        inside = corpus.sentences[(corpus.sentences >= begin) & (corpus.sentences < end)]
        cuts = [*(int(i) for i in inside), int(end) - 1]
        spans.append([(i, j) for i, j in itertools.pairwise(cuts) if i < j])
    return spans


def truncate_plainly(a, b, size):
    """Drops tokens of the longer one, one at a time; returns how many are left of A and B."""
    while a + b > size:
        a, b = (a - 1, b) if a > b else (a, b - 1)
    return a, b
