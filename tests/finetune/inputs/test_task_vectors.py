"""A task's own words begin with the vectors of a file, also those of held-out texts alone."""

import jax
import numpy as np
import pytest

from finetune.inputs import task_vectors, word_vectors
from pretrain.runtime.errors import UserError

TRAIN = [["The", "cat", "of", "1987"], ["the", "dog"]]
HELD_OUT = [["A", "Rat", "blorb", "the"]]


@pytest.fixture
def vectors(tmp_path):
    """The section of a file of vectors."""
    (tmp_path / "glove.txt").write_text("the 1 2\nrat 3 4\n0000 5 8\n1987 9 9\nunused 7 7\n")
    return dict(path=str(tmp_path / "glove.txt"), tables=(word_vectors.TASK_TABLE,), scale=0.1)


def test_the_table_s_rows_are_the_vocabulary_s(vectors):
    task = dict(
        name="tag", min_count=1, zero_digits=True, encoder=dict(name="recurrent", word_D=None)
    )
    task, table = task_vectors.build_own_table(vectors, task, TRAIN, HELD_OUT, 0)
    assert task["vocabulary"] == ["the", "cat", "of", "0000", "dog", "rat"]
    assert task["encoder"]["word_D"] == 2
    known = {0: (0, 0), 1: (1, 2), 4: (5, 8), 6: (3, 4)}
    for row, vector_D in known.items():
        np.testing.assert_array_equal(table.rows_VD[row], vector_D)
    assert 0 < np.abs(table.rows_VD[[2, 3, 5]]).max() <= 0.1
    params = {"encoder": {"word_VD": jax.numpy.zeros((7, 2))}}
    np.testing.assert_array_equal(table.place(params)["encoder"]["word_VD"], table.rows_VD)
    with pytest.raises(UserError, match=r"set task\.encoder\.word_D=2"):
        table.place({"encoder": {"word_VD": jax.numpy.zeros((7, 3))}})


def test_a_task_without_words_of_its_own_is_refused(vectors):
    assert word_vectors.is_of_task(vectors)
    assert not word_vectors.is_of_task(vectors | dict(path=""))
    with pytest.raises(UserError, match=r"set task\.min_count"):
        task_vectors.build_own_table(vectors, dict(name="tag", min_count=0), TRAIN, HELD_OUT, 0)
