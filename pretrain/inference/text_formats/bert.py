"""BERT's rows: [CLS] A [SEP] B [SEP], in two segments (Devlin et al. 2019, section 4)."""

from pretrain.inference.text_format import TextFormat

FORMAT = TextFormat(before=("cls",), between=("sep",), after=("sep",), segments=2)
