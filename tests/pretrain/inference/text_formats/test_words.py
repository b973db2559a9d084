"""One text is A alone: words and no marks."""

from pretrain.inference.text_formats.words import FORMAT


def test_a_text_stands_between_the_marks_that_pretraining_showed():
    assert FORMAT.frame({}) == ([], [], [])


def test_texts_of_a_row_are_parted_and_pooled_by_their_maximum():
    assert FORMAT.marks == ("eos",)
    assert FORMAT.pool == "max"
