"""Hosts that read their own rows: together they have the batch, and every row counts once."""

import functools
import itertools

import numpy as np
import pytest

from pretrain.data import batches
from pretrain.data.batches.loader import stream
from tests.support import corpora

LAYOUTS = {
    "lanes": {"L": 24, "reuse_len": 7},
    "windows": {"L": 24},
    "pairs": {"L": 32},
    "bidirectional": {"L": 7, "characters": 12},
}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """(name of the tokens) -> a corpus in them."""

    @functools.cache
    def make(name: str):
        folder = tmp_path_factory.mktemp("corpus")
        tokens = {"words": {"name": "words"}}.get(name, corpora.TOKENS)
        return corpora.make(folder, tokens=tokens, held_out=0.2)

    return make


def layouts(corpus, name: str, split: str, B: int):
    """() -> the layout, as each host makes it for itself."""
    text = corpus("words" if name == "bidirectional" else "pieces")
    return lambda: batches.build(name, text, split=split, B=B, **LAYOUTS[name])


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("hosts", [1, 2, 4])
@pytest.mark.parametrize("split", ["train", "held_out"])
def test_the_rows_of_all_hosts_together_are_the_batch(corpus, name, hosts, split):
    make = layouts(corpus, name, split, B=8)
    parts = [slice(8 * host // hosts, 8 * (host + 1) // hosts) for host in range(hosts)]
    streams = [stream(make(), 0, rows) for rows in parts]
    whole = stream(make(), 0)
    for (_, batch), *own in itertools.islice(zip(whole, *streams, strict=True), 40):
        for key, value in batch.items():
            together = np.concatenate([part[key] for _, part in own])
            np.testing.assert_array_equal(together, value)


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("hosts", [1, 2, 4])
def test_held_out_rows_are_weighed_once_though_they_do_not_fill_the_last_batch(corpus, name, hosts):
    weights = {}
    for B in (4, 8, 20):
        make, size = layouts(corpus, name, "held_out", B), B // hosts
        of_hosts = [
            [batch["weight_B"] for _, batch in stream(make(), 0, slice(h * size, (h + 1) * size))]
            for h in range(hosts)
        ]
        assert len({len(weight) for weight in of_hosts}) == 1, "a host would wait for the others"
        weights[B] = np.concatenate(list(itertools.chain(*of_hosts)))
    assert len({weight.sum() for weight in weights.values()}) == 1
    assert any((weight == 0).any() for weight in weights.values()), "this test wants filler"
