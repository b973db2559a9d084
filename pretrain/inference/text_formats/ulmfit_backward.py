"""Rows of ULMFiT's second model, which has learned to read texts from their end."""

import dataclasses

from pretrain.inference.text_formats import ulmfit

FORMAT = dataclasses.replace(ulmfit.FORMAT, backward=True)
