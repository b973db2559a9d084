"""Options are scored row by row; one that is not there cannot win, and weighs nothing."""

import numpy as np

from finetune.tasks.option_scores import score_options


def test_an_option_that_is_not_there_has_the_lowest_score_and_no_weight():
    batch = {
        "tokens_BOL": np.float32([[[1], [9]], [[3], [4]], [[5], [6]]]),
        "valid_BOL": np.ones((3, 2, 1), bool),
        "there_BO": np.array([[True, False], [True, True], [True, True]]),
        "weight_B": np.float32([1, 1, 0]),
    }
    encode = lambda rows, train: rows["tokens_BL"][..., None]  # noqa: E731
    head = lambda h_BLD, valid_BL, weight_B, train: h_BLD[:, 0] * 2  # noqa: E731
    logits_BO, h_BLD, rows = score_options(encode, head, batch, train=False)
    assert logits_BO.tolist() == [[2, np.finfo(np.float32).min], [6, 8], [10, 12]]
    assert h_BLD.shape == (6, 1, 1)
    assert rows["weight_B"].tolist() == [1, 0, 1, 1, 0, 0]
