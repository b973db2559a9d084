"""Tags are learned in one scheme, and written in that of their files."""

import pytest

from finetune.inputs.labels import UNKNOWN, UNSEEN
from finetune.inputs.tag_set import TagSet
from pretrain.runtime.errors import UserError

TRAIN = [dict(words=["a", "b", "c"], labels=["B-LOC", "I-LOC", "O"], where="line 1")]


def test_tags_are_learned_in_one_scheme_and_written_in_another():
    tags = TagSet(TRAIN, scheme="iob2", convert_to="bmes")
    assert tags.labels == ["O", "B-LOC", "M-LOC", "E-LOC", "S-LOC"]
    learned = tags.convert(TRAIN[0])
    assert learned == ["B-LOC", "E-LOC", "O"]
    assert tags.format(learned)["labels"] == TRAIN[0]["labels"]


def test_ids_tell_unknown_labels_from_unseen_ones():
    tags = TagSet(TRAIN)
    assert tags.ids(TRAIN[0] | dict(labels=None)) == [UNKNOWN] * 3
    assert tags.ids(TRAIN[0] | dict(labels=["O", "B-PER", "O"]))[1] == UNSEEN
    with pytest.raises(UserError, match="'B-PER' is none of"):
        TagSet(TRAIN, closed=True).ids(TRAIN[0] | dict(labels=["O", "B-PER", "O"]))
