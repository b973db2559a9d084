"""Rows of ULMFiT (Howard & Ruder 2018): the end of the document before it, then the text.

So a language model on joined documents has seen every text begin.
"""

from pretrain.inference.text_format import TextFormat

FORMAT = TextFormat(before=("eod",), between=("eod",), pool="last")
