"""Rows of texts between marks: <cls> a text <sep> another <sep>, then <pad>."""

import numpy as np

from pretrain.data.batches import Batch
from pretrain.data.corpus.prepared_corpus import Corpus

MARKS = ("cls", "sep", "pad")


def lay_out_rows(
    corpus: Corpus,
    position_BL: np.ndarray,
    *,
    is_cls_BL: np.ndarray | None = None,
    is_sep_BL: np.ndarray,
    segments_BL: np.ndarray,
    valid_BL: np.ndarray,
) -> Batch:
    """Builds tokens_BL, segments_BL, valid_BL and word_starts_BL of a batch.

    Args:
        position_BL: of each token in the corpus; those of marks and padding may lie outside of it.
        is_cls_BL: where a <cls> stands; None: first in each row.
        valid_BL: no padding.
    """
    special = corpus.tokenizer.special
    tokens_BL = corpus.tokens.take(position_BL, mode="clip").astype(np.int32)
    first = (slice(None), 0) if is_cls_BL is None else is_cls_BL
    tokens_BL[first] = special["cls"]
    tokens_BL[is_sep_BL] = special["sep"]
    tokens_BL[~valid_BL] = special["pad"]
    return {
        "tokens_BL": tokens_BL,
        "segments_BL": segments_BL.astype(np.int32),
        "valid_BL": valid_BL,
        "word_starts_BL": corpus.tokenizer.word_start_V[tokens_BL],
    }
