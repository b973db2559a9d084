"""GPT's rows: <start> A <delimiter> B <extract> (Radford et al. 2018, section 3.3).

Pretraining has none of the three marks, and so a text is embedded without any.
"""

from pretrain.inference.text_format import TextFormat

FORMAT = TextFormat(
    before=("start",),
    between=("delimiter",),
    after=("extract",),
    new_tokens=("start", "delimiter", "extract"),
    pool="last",
    separate_choice=True,
)
