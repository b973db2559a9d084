"""Text is cleaned as XLNet does, and knows where it comes from."""

import pytest

from pretrain.data.tokenizers.normalization import clean_text, clean_with_origins
from tests.support.tokenizer_data import ODD, TEXTS, keep_letters


@pytest.mark.parametrize("lower", [False, True])
@pytest.mark.parametrize("keep_accents", [False, True])
def test_the_clean_text_knows_where_it_comes_from(lower, keep_accents):
    for text in ODD + TEXTS[:20]:
        cleaned = clean_with_origins(text, lower, keep_accents)
        assert cleaned.text == clean_text(text, lower, keep_accents)
        for char, start, end in zip(*cleaned, strict=True):
            assert keep_letters(char) in keep_letters(text[start:end])


@pytest.mark.parametrize(
    ("text", "options", "cleaned"),
    [
        ("  two\t words\n", {}, "two words"),
        ("``quoted''", {}, '"quoted"'),
        ("Café Ångström", {}, "Cafe Angstrom"),
        ("Café", dict(keep_accents=True), "Café"),
        ("Café", dict(lower=True), "cafe"),
        ("½ ﬁ", {}, "1⁄2 fi"),
    ],
)
def test_text_is_cleaned_as_xlnet_does(text, options, cleaned):
    assert clean_text(text, **dict(lower=False, keep_accents=False) | options) == cleaned
