"""Labels that training lacks are named once, and refused where they are listed."""

import pytest

from finetune.inputs.labels import UNSEEN, Unseen
from pretrain.runtime.errors import UserError


def test_new_labels_are_named_once_with_their_first_place():
    unseen = Unseen(closed=False)
    for label, where in (("b", "line 1"), ("c", "line 2"), ("b", "line 3")):
        assert unseen.number(label, ["a"], where) == UNSEEN
    (note,) = unseen.notes()
    assert note.endswith("in the loss: 'b' (line 1), 'c' (line 2)")
    assert unseen.notes() == []
    unseen.number("d", ["a"], "line 4")
    assert unseen.notes()[0].endswith(": 'd' (line 4)")


def test_a_note_names_nine_labels_and_counts_the_rest():
    unseen = Unseen(closed=False)
    for i in range(11):
        unseen.number(f"x{i}", ["a"], f"line {i}")
    (note,) = unseen.notes()
    assert note.endswith("'x8' (line 8) and 2 more")


def test_a_label_beyond_a_closed_list_is_refused():
    with pytest.raises(UserError, match="line 7: label 'c' is none of a, b"):
        Unseen(closed=True).number("c", ["a", "b"], "line 7")
