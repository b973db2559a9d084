"""Closed texts: each text with the end of a document behind it, whose state speaks for the row."""

from pretrain.inference.text_format import TextFormat

FORMAT = TextFormat(between=("eod",), after=("eod",), pool="last")
