"""An embedding begins with the vectors of a file, and with draws for the words it lacks."""

import jax.numpy as jnp
import numpy as np
import pytest

from finetune.inputs.word_vectors import build_table
from pretrain.data.tokenizers import registry
from pretrain.runtime.errors import UserError

TRAIN, TEST = ["The cat sat", "the Rat sat"], ["a cat sits", "blorb sits"]
FILE = "the 1 2\ncat 3 4\nsits 5 8\nRat 6 9\nrat 7 7\nunused 0 0\n"


@pytest.fixture
def build(tmp_path):
    """(fields) -> tokenizer, table."""
    (tmp_path / "glove.txt").write_text(FILE)

    def build(seed=0, lower=True, **fields):
        tokenizer = registry.learn(iter(TRAIN), name="words", split="blank")
        path = str(tmp_path / "glove.txt")
        return build_table(tokenizer, TRAIN, TEST, seed, path=path, lower=lower, **fields)

    return build


def rows(built):
    tokenizer, table = built
    return dict(zip(tokenizer.pieces, table.rows_VD, strict=True))


def test_known_words_have_their_vectors_and_test_s_words_with_one_are_known(build):
    found = rows(build())
    assert found.keys() == {"<S>", "</S>", "<UNK>", "sat", "the", "The", "Rat", "cat", "sits"}
    expected = {"the": (1, 2), "The": (1, 2), "Rat": (6, 9), "cat": (3, 4), "sits": (5, 8)}
    for word, vector_D in expected.items():
        np.testing.assert_array_equal(found[word], vector_D)
    np.testing.assert_array_equal(found["<S>"], 0)  # fills rows up
    exact = rows(build(lower=False))
    assert not np.array_equal(exact["The"], (1, 2))


def test_other_words_are_drawn_from_the_seed_within_the_scale_or_the_files_variance(build):
    draw_rows = lambda built: np.stack([rows(built)[word] for word in ("sat", "</S>", "<UNK>")])  # noqa: E731
    one = draw_rows(build(scale=0.1))
    assert 0 < np.abs(one).max() <= 0.1
    np.testing.assert_array_equal(one, draw_rows(build(scale=0.1)))
    assert (one != draw_rows(build(scale=0.1, seed=1))).all()
    # The same draws, up to the bound of a uniform draw of that deviation.
    deviation_D = np.std([[1, 2], [3, 4], [5, 8], [6, 9], [7, 7]], 0)
    matched = draw_rows(build(match_variance=True))
    np.testing.assert_allclose(matched, one / 0.1 * np.sqrt(3) * deviation_D, rtol=1e-5)


def test_coverage_is_said_of_words_and_of_running_words(build):
    assert (
        build()[1].notes[0].endswith("5 of 9 words have vectors (55.6%), 63.6% of 11 running words")
    )


def test_tables_begin_with_the_rows_and_further_rows_stay(build):
    _, table = build(tables=("backbone/token_VD", "backbone/fixed_VD"))
    old = {"backbone": {name: jnp.ones((11, 2)) for name in ("token_VD", "fixed_VD", "w_DF")}}
    new = table.place(old)["backbone"]
    for name in ("token_VD", "fixed_VD"):
        np.testing.assert_array_equal(new[name], np.concatenate([table.rows_VD, np.ones((2, 2))]))
    np.testing.assert_array_equal(new["w_DF"], 1)


@pytest.mark.parametrize(
    ("table", "message"),
    [("backbone/w_VD", "there is no 'backbone/w_VD'"), ("backbone/token_VD", "set model.D=2")],
)
def test_a_table_that_does_not_fit_is_refused(build, table, message):
    with pytest.raises(UserError, match=message):
        build(tables=(table,))[1].place({"backbone": {"token_VD": jnp.ones((11, 3))}})


def test_pieces_of_words_have_no_vectors():
    with pytest.raises(UserError, match=r"set tokens\.name='words'"):
        build_table(object(), [], [], 0, path="glove.txt")
