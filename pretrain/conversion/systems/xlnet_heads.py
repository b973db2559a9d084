"""Classes of Hugging Face's XLNet that compute heads of fine-tuned runs."""

from pretrain.conversion.name_map import Rows
from pretrain.conversion.task_heads import (
    CONDITIONAL,
    Heads,
    TaskHead,
    hidden_layer,
    list_row_heads,
    list_token_heads,
)


def split_layer(ours: tuple[str, str], theirs: str) -> Rows:
    """Returns the rows of a layer of two states side by side, which is two layers in ours."""
    # Only the first of the two has the bias.
    first, second = (
        {f"head/{name}/w_DF": (f"{theirs}.weight", "F(CD) -> DF", f"C={i}/2")}
        for i, name in enumerate(ours)
    )
    return {**first, **second, f"head/{ours[0]}/bias_F": (f"{theirs}.bias", "F")}


def last_number(ours: str, theirs: str, bias: bool = True) -> Rows:
    weight: Rows = {f"head/{ours}/w_DF": (f"{theirs}.weight", "FD")}
    return {**weight, f"head/{ours}/bias_F": (f"{theirs}.bias", "F")} if bias else weight


ANSWERS: Rows = {  # the end is scored given the start
    **last_number("start", "start_logits.dense"),
    **split_layer(("end_state", "end_start"), "end_logits.dense_0"),
    "head/end_norm/scale_D": ("end_logits.LayerNorm.weight", "D"),
    "head/end_norm/bias_D": ("end_logits.LayerNorm.bias", "D"),
    **last_number("end", "end_logits.dense_1"),
    **split_layer(("none_start", "none_null"), "answer_class.dense_0"),
    **last_number("none", "answer_class.dense_1", bias=False),
}
ROW = dict(pool="last", dropout="summary_last_dropout")
SUMMARY = dict(summary_type="last", summary_activation="tanh", summary_use_proj=True)
WITH_LAYER, WITHOUT_LAYER = (
    list_row_heads("XLNet", "logits_proj", layers, fields=fields, **ROW)
    for layers, fields in (
        ({"tanh": hidden_layer("sequence_summary.summary")}, SUMMARY),
        ({"none": {}}, {**SUMMARY, "summary_activation": None, "summary_use_proj": False}),
    )
)
HEADS: Heads = {
    **{kind: [*heads, *WITHOUT_LAYER[kind]] for kind, heads in WITH_LAYER.items()},
    **list_token_heads("XLNet", "QuestionAnsweringSimple"),
    CONDITIONAL: [
        TaskHead("XLNetForQuestionAnswering", ANSWERS, fields=dict(start_n_top=5, end_n_top=5))
    ],
}
