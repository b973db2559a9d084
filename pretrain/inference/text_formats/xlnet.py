"""XLNet's rows: A <sep> B <sep> <cls>, padded on the left (its classifier_utils.py).

Segments are 0, 1, and 2 of <cls>.  Its run_squad.py reads the context before the question.
"""

from pretrain.inference.text_format import TextFormat

FORMAT = TextFormat(
    between=("sep",),
    after=("sep",),
    last=("cls",),
    last_segment=2,
    segments=3,
    padding="left",
    pool="last",
    context_first=True,
    conditional_end=True,
)
