"""BERT's rows of up to three texts, each in a segment of its own: Meituan's BERT for search."""

import dataclasses

from pretrain.inference.text_formats import bert

FORMAT = dataclasses.replace(bert.FORMAT, segments=3)
