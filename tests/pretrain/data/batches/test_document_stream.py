"""A stream of documents is the documents, one after the other, from either end."""

import types

import numpy as np

from pretrain.data.batches.document_stream import Stream

CORPUS = types.SimpleNamespace(
    documents=np.array([0, 3, 7, 9]), sentences=np.array([0, 2, 3, 5, 7, 9])
)
ORDER = [7, 8, 0, 1, 2, 3, 4, 5, 6]  # of tokens, where documents come as 2, 0, 1
FORWARDS, BACKWARDS = np.array([[False]]), np.array([[True]])
STREAM = Stream(CORPUS, np.array([2, 0, 1]))
POSITIONS = np.arange(2 * len(ORDER))[None]


def test_positions_go_round_and_round_through_the_documents():
    for backward, order in ((FORWARDS, ORDER), (BACKWARDS, ORDER[::-1])):
        places = STREAM.find(POSITIONS, backward)
        np.testing.assert_array_equal(places.corpus[0], order * 2)


def test_documents_and_sentences_open_in_reading_order():
    for backward, documents, sentences in (
        (FORWARDS, [7, 0, 3], [7, 0, 2, 3, 5]),
        (BACKWARDS, [6, 2, 8], [6, 4, 2, 1, 8]),
    ):
        places = STREAM.find(POSITIONS[:, : len(ORDER)], backward)
        opens = STREAM.opens_document(places, backward)
        np.testing.assert_array_equal(places.corpus[opens], documents)
        opens = STREAM.opens_sentence(POSITIONS[:, : len(ORDER)], backward)
        np.testing.assert_array_equal(places.corpus[opens], sentences)


def test_a_sentence_begins_at_the_last_opening_before():
    for backward in (FORWARDS, BACKWARDS):
        for position in range(len(ORDER)):
            begin = STREAM.find_sentence(np.array([[position]]), backward)
            opens = STREAM.opens_sentence(POSITIONS[:, : position + 1], backward)[0]
            assert begin[0, 0] == np.flatnonzero(opens)[-1]
