"""One text is <S> A </S>."""

from pretrain.inference.text_formats.elmo import FORMAT


def test_a_text_stands_between_the_marks_that_pretraining_showed():
    assert FORMAT.frame(dict(bos=0, eos=1)) == ([0], [1], [0])


def test_every_text_of_a_row_has_both_marks():
    assert FORMAT.between == FORMAT.after + FORMAT.before
    assert FORMAT.segments == 0
