"""The presidents are those of the corpus, one after the other."""

import pytest

from finetune.datasets import presidents
from pretrain.runtime.errors import UserError
from tests.support.sotu import messages


def test_parties_are_those_of_the_corpus_own_table():
    for row in messages().values():
        known = presidents.party(row["president"], int(row["year"]))
        assert (known or "Nonpartisan") == row["party"], row["fileid"]
    assert presidents.party("McKinley", 1899) == presidents.REPUBLICAN
    with pytest.raises(UserError, match="Lincoln, 1900: there was no such president"):
        presidents.party("Lincoln", 1900)


def test_terms_follow_each_other_without_a_gap():
    ends = [row[2] for row in presidents.PRESIDENTS[:-1]]
    assert ends == [row[1] for row in presidents.PRESIDENTS[1:]]
