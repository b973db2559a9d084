"""One text is [CLS] A [SEP]."""

from pretrain.inference.text_formats.bert import FORMAT


def test_a_text_stands_between_the_marks_that_pretraining_showed():
    assert FORMAT.frame(dict(cls=0, sep=1)) == ([0], [1], [0])


def test_a_pair_is_two_segments_with_a_mark_behind_each():
    assert FORMAT.between == FORMAT.after == ("sep",)
    assert FORMAT.segments == 2
