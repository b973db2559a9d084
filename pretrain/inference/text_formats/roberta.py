"""RoBERTa's rows: <s> A </s></s> B </s>, without segments (Liu et al. 2019)."""

from pretrain.inference.text_format import TextFormat

FORMAT = TextFormat(before=("cls",), between=("sep", "sep"), after=("sep",))
