"""One text is A alone, as pretraining has no marks."""

from pretrain.inference.text_formats.gpt import FORMAT


def test_a_text_stands_between_the_marks_that_pretraining_showed():
    assert FORMAT.frame({}) == ([], [], [])


def test_fine_tuning_adds_three_marks_and_reads_the_last():
    assert FORMAT.marks == FORMAT.new_tokens == ("start", "delimiter", "extract")
    assert FORMAT.pool == "last"
