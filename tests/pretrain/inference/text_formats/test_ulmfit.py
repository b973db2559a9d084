"""A text follows the mark that ends a document, as in the language model's stream."""

from pretrain.inference.text_formats.ulmfit import FORMAT


def test_a_text_follows_the_end_of_a_document_and_speaks_by_its_last_state():
    assert FORMAT.frame({"eod": 7}) == ([7], [], [])
    assert FORMAT.pool == "last"
