"""Rows of words and nothing else, A </S> B, summed up by their maximum: networks from scratch.

As in Collobert & Weston 2008, Kim 2014 and Zhang & Wang 2015, which knew no marks.
"""

from pretrain.inference.text_format import TextFormat

FORMAT = TextFormat(between=("eos",), pool="max")
