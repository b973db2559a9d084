"""RoBERTa parts two texts by two marks, and has no segments."""

from pretrain.inference.text_formats.roberta import FORMAT

SPECIAL = {"cls": 0, "pad": 1, "sep": 2}


def test_one_text_stands_between_two_marks():
    assert FORMAT.frame(SPECIAL) == ([0], [2], [0])
    assert FORMAT.between == ("sep", "sep")
    assert FORMAT.segments == 0
