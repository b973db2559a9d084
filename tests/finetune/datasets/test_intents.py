"""A sentence comes with its tags and its intent, or its line is named."""

import pytest

from pretrain.runtime.errors import UserError
from tests.support.dataset_files import read_written

LINES = "BOS play Ada  now EOS\tO O B-artist O PlayMusic\n\nBOS rain EOS\tO O GetWeather\n"


def test_the_words_at_the_ends_are_left_out_and_the_last_tag_is_the_intent(tmp_path):
    first, second = read_written(tmp_path, "intents", LINES).examples
    assert (first["words"], first["labels"]) == (["play", "Ada", "now"], ["O", "B-artist", "O"])
    assert (first["texts"], first["label"]) == (["play Ada now"], "PlayMusic")
    assert (second["label"], second["where"].rpartition(" ")[2]) == ("GetWeather", "3")
    (plain,) = read_written(tmp_path, "intents", "play Ada\tO B-artist Play", ends=()).examples
    assert (plain["words"], plain["label"]) == (["play", "Ada"], "Play")
    (bare,) = read_written(tmp_path, "intents", "play Ada", ends=(), has_labels=False).examples
    assert (bare["labels"], bare["label"]) == (None, None)


WRONG = {
    "BOS a EOS": "line 1: there should be words, a tab and tags",
    "a b\tO X": "line 1: no words between 'BOS' and 'EOS'",
    "BOS a b EOS\tO O X": "line 1: 2 words with 1 tags and an intent",
}


@pytest.mark.parametrize("line", WRONG)
def test_a_line_that_is_none_is_named(tmp_path, line):
    with pytest.raises(UserError, match=WRONG[line]):
        read_written(tmp_path, "intents", line)
