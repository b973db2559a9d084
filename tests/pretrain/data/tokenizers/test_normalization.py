"""Text is cleaned as XLNet does, and knows where it comes from."""

import unicodedata

import pytest

from pretrain.data.tokenizers.normalization import clean, clean_with_origins
from tests.support.tokenizer_data import TEXTS

ODD = [
    "",
    "   ",
    "Café  “naïve”\tÜnï\n code—it's ``so'' ''and`` on, e\u0301a ",
    "In 1990, 2,000, or 12,345,678, ﬁne ½ Σας ΣΑΣ İx 北京大学, 🙂 \x07 ´end´",
]


def plain(text):
    """Letters and digits alone, without case, accents and compatibility forms."""
    decomposed = unicodedata.normalize("NFKD", text.casefold())
    return "".join(c for c in unicodedata.normalize("NFKD", decomposed) if c.isalnum())


@pytest.mark.parametrize("lower", [False, True])
@pytest.mark.parametrize("keep_accents", [False, True])
def test_the_clean_text_knows_where_it_comes_from(lower, keep_accents):
    for text in ODD + TEXTS[:20]:
        made = clean_with_origins(text, lower, keep_accents)
        assert made.text == clean(text, lower, keep_accents)
        for char, start, end in zip(made.text, made.starts, made.ends, strict=True):
            assert plain(char) in plain(text[start:end])


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
    assert clean(text, **dict(lower=False, keep_accents=False) | options) == cleaned
