"""XLNet's clean-up of text before its pieces: blanks, quotes, accents, case."""

import unicodedata


def clean(text: str, lower: bool, keep_accents: bool) -> str:
    """One blank between words, `` and '' as ", accents dropped, lower case if asked."""
    text = " ".join(text.split()).replace("``", '"').replace("''", '"')
    if not keep_accents and not text.isascii():
        decomposed = unicodedata.normalize("NFKD", text)
        text = "".join(c for c in decomposed if not unicodedata.combining(c))
    return text.lower() if lower else text
