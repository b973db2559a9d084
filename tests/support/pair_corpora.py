"""What the tests of pairs share: corpora made to measure, and the original's loop written out."""

import itertools
import types

import numpy as np

from pretrain.data import batches
from pretrain.data.batches import pairs
from pretrain.data.batches.document_stream import make_rng

CLS, SEP, PAD, EOD = 3, 4, 5, 7


def build(corpus, split="train", **fields):
    """Small pairs of a prepared corpus."""
    return batches.build("pairs", corpus, split=split, **{"B": 8, "L": 96} | fields)


def made(*documents):
    """A corpus of documents, each a list of the sizes of its sentences; tokens count from 10."""
    sizes = [size for each in documents for size in (*each[:-1], each[-1] + 1)]
    begins = np.cumsum([0, *sizes])
    ends = np.cumsum([0, *(len(each) for each in documents)])
    tokens = 10 + np.arange(begins[-1])
    tokens[begins[ends[1:]] - 1] = EOD
    special = {"cls": CLS, "sep": SEP, "pad": PAD}
    tokenizer = types.SimpleNamespace(special=special, word_start_V=np.ones(10 + len(tokens), bool))
    return types.SimpleNamespace(
        tokens=tokens, documents=begins[ends], sentences=begins, tokenizer=tokenizer
    )


def of(corpus, shuffle=True, **fields):
    """Pairs over all documents of a corpus that was `made`."""
    layout = pairs.BatchLayout(**{"B": 1, **fields})
    return layout.bind(corpus, np.arange(len(corpus.documents) - 1), shuffle=shuffle)


def sample(layout, epoch=0):
    """The rows of an epoch before they are cut to the room they have."""
    return layout.sampler.sample(make_rng(layout.seed, pairs.INSTANCES, epoch))


def sentences_of(corpus, documents):
    """Of each document, the spans of its sentences, without its <eod>."""
    found = []
    for document in documents:
        begin, end = corpus.documents[document : document + 2]
        inside = corpus.sentences[(corpus.sentences >= begin) & (corpus.sentences < end)]
        cuts = [*(int(i) for i in inside), int(end) - 1]
        found.append([(i, j) for i, j in itertools.pairwise(cuts) if i < j])
    return found


# --- the original's loop, one sentence at a time -------------------------------------------------


def plain(layout, epoch):
    """(A, B, follows) before truncation; A and B are lists of sentences' spans."""
    rng = make_rng(layout.seed, pairs.INSTANCES, epoch)
    documents = sentences_of(layout.corpus, layout.documents)
    fixed = targets(layout, rng, len(documents)) if layout.faithful else None
    live, rows = [(d, 0) for d in range(len(documents))], []
    while live:
        sizes = [fixed[d] for d, _ in live] if fixed else targets(layout, rng, len(live))
        chances = rng.random((4, len(live))).T
        chunks = [chunk(documents[d], i, n) for (d, i), n in zip(live, sizes, strict=True)]
        owed = (len(rows) + len(live)) / 2 - sum(follows for *_, follows in rows)
        odds = 0.5 if layout.faithful else owed / max(1, sum(len(c) > 1 for c in chunks))
        new = [
            row(documents, d, *each, odds)
            for (d, _), *each in zip(live, chunks, sizes, chances, strict=True)
        ]
        live = [
            (d, i + len(a) + follows * len(b))
            for (d, i), (a, b, follows) in zip(live, new, strict=True)
        ]
        live = [(d, i) for d, i in live if i < len(documents[d])]
        rows += new
    return rows


def row(documents, own, sentences, size, chances, odds):
    """The chunk's sentences as A and B, or as A alone with a B of another document."""
    where, coin, *elsewhere = chances
    cut = 1 + int(where * (len(sentences) - 1))
    a, b = sentences[:cut], sentences[cut:]
    follows = bool(b) and coin < odds
    return a, b if follows else other(documents, own, size - length(a), *elsewhere), follows


def targets(layout, rng, count):
    full = layout.L - 3
    coins, sizes = rng.random((2, count))
    return [
        2 + int(size * (full - 1)) if coin < layout.short_seq_prob else full
        for coin, size in zip(coins, sizes, strict=True)
    ]


def length(spans):
    return sum(j - i for i, j in spans)


def chunk(sentences, first, size):
    """Whole sentences until `size` tokens are reached, or there are no more."""
    taken = []
    while first + len(taken) < len(sentences) and (not taken or length(taken) < size):
        taken.append(sentences[first + len(taken)])
    return taken


def other(documents, own, size, which, where):
    others = [sentences for d, sentences in enumerate(documents) if d != own]
    sentences = others[int(which * len(others))]
    return chunk(sentences, int(where * len(sentences)), size)


def shortened(a, b, size):
    """How many tokens are left of A and B when the longer one gives, one at a time."""
    while a + b > size:
        a, b = (a - 1, b) if a > b else (a, b - 1)
    return a, b
