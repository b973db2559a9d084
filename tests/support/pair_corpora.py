"""Corpora of chosen sizes, and the loop of BERT's own code written out, for the tests of pairs."""

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


# --- the original's loop, one sentence at a time -------------------------------------------------


def sample_plainly(layout, epoch):
    """Lists (A, B, follows) before truncation; A and B are lists of sentences' spans."""
    rng = make_rng(layout.seed, pairs.INSTANCES, epoch)
    documents = sentences_of(layout.corpus, layout.documents)
    fixed = sample_targets(layout, rng, len(documents)) if layout.faithful else None
    live, rows = [(d, 0) for d in range(len(documents))], []
    while live:
        sizes = [fixed[d] for d, _ in live] if fixed else sample_targets(layout, rng, len(live))
        chances = rng.random((4, len(live))).T
        chunks = [take_chunk(documents[d], i, n) for (d, i), n in zip(live, sizes, strict=True)]
        owed = (len(rows) + len(live)) / 2 - sum(follows for *_, follows in rows)
        odds = 0.5 if layout.faithful else owed / max(1, sum(len(c) > 1 for c in chunks))
        new = [
            lay_row(documents, d, *each, odds)
            for (d, _), *each in zip(live, chunks, sizes, chances, strict=True)
        ]
        live = [
            (d, i + len(a) + follows * len(b))
            for (d, i), (a, b, follows) in zip(live, new, strict=True)
        ]
        live = [(d, i) for d, i in live if i < len(documents[d])]
        rows += new
    return rows


def lay_row(documents, own, sentences, size, chances, odds):
    """Splits a chunk into A and B, or takes it as A with a B of another document."""
    where, coin, *elsewhere = chances
    cut = 1 + int(where * (len(sentences) - 1))
    a, b = sentences[:cut], sentences[cut:]
    follows = bool(b) and coin < odds
    return (
        a,
        b if follows else take_elsewhere(documents, own, size - count_tokens(a), *elsewhere),
        follows,
    )


def sample_targets(layout, rng, count):
    full = layout.L - 3
    coins, sizes = rng.random((2, count))
    return [
        2 + int(size * (full - 1)) if coin < layout.short_seq_prob else full
        for coin, size in zip(coins, sizes, strict=True)
    ]


def count_tokens(spans):
    return sum(j - i for i, j in spans)


def take_chunk(sentences, first, size):
    """Takes whole sentences until `size` tokens are reached, or there are no more."""
    taken = []
    while first + len(taken) < len(sentences) and (not taken or count_tokens(taken) < size):
        taken.append(sentences[first + len(taken)])
    return taken


def take_elsewhere(documents, own, size, which, where):
    others = [sentences for d, sentences in enumerate(documents) if d != own]
    sentences = others[int(which * len(others))]
    return take_chunk(sentences, int(where * len(sentences)), size)


def truncate_plainly(a, b, size):
    """Drops tokens of the longer one, one at a time; returns how many are left of A and B."""
    while a + b > size:
        a, b = (a - 1, b) if a > b else (a, b - 1)
    return a, b
