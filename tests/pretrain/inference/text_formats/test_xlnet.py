"""One text is A <sep> <cls>, and <cls> is of the third segment."""

from pretrain.inference.text_formats.xlnet import FORMAT


def test_a_text_stands_between_the_marks_that_pretraining_showed():
    assert FORMAT.frame(dict(cls=0, sep=1)) == ([], [1, 0], [0, 2])


def test_rows_end_in_the_mark_that_is_read():
    assert (FORMAT.last, FORMAT.pool, FORMAT.padding) == (("cls",), "last", "left")
    assert FORMAT.last_segment == FORMAT.segments - 1
