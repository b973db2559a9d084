"""Text and batches of a layout, read plainly, for the tests of batch layouts."""

import itertools

import numpy as np


def text_of(corpus, documents) -> np.ndarray:
    """Joins the tokens of documents."""
    spans = zip(corpus.documents[documents], corpus.documents[documents + 1], strict=True)
    return np.concatenate([corpus.tokens[i:j] for i, j in spans]).astype(np.int32)


def order_of(layout, epoch: int) -> list[int]:
    """Lists the documents of an epoch in reading order, by where its stream has them."""
    begins = layout.epoch(epoch).shift + layout.epoch(epoch).begins[:-1]
    return np.searchsorted(layout.corpus.documents, begins).tolist()


def read_epoch(layout, epoch: int = 0, axis: int = 0) -> dict[str, np.ndarray]:
    """Joins all batches of an epoch: one under the other, or along another axis."""
    steps = range(epoch * layout.steps_per_epoch, (epoch + 1) * layout.steps_per_epoch)
    batches = [layout.batch(step) for step in steps]
    long = [name for name, array in batches[0].items() if array.ndim > axis]
    return {name: np.concatenate([batch[name] for batch in batches], axis) for name in long}


def sentences_of(corpus, document: int) -> list[list[int]]:
    """Lists the tokens of each sentence."""
    begin, end = corpus.documents[document : document + 2]
    cuts = [cut for cut in corpus.sentences.tolist() if begin <= cut <= end]
    return [corpus.tokens[i:j].tolist() for i, j in itertools.pairwise(cuts)]


def assert_same_batch(one, other) -> None:
    assert one.keys() == other.keys()
    for name, array in one.items():
        np.testing.assert_array_equal(array, other[name], name)
