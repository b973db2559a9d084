"""ELMo's rows: <S> A </S> <S> B </S>, summed up by the average state (Peters et al. 2018)."""

from pretrain.inference.text_format import TextFormat

FORMAT = TextFormat(before=("bos",), between=("eos", "bos"), after=("eos",), pool="mean")
