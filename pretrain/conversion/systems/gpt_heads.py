"""Classes of Hugging Face's GPT-1 and GPT-2 that compute heads of fine-tuned runs."""

from pretrain.conversion.name_map import Rows
from pretrain.conversion.task_heads import Heads, TaskHead, list_token_heads

SCORE: Rows = {"head/w_DC": ("score.weight", "CD")}  # PyTorch's axes are [out, in]


def list_row_classes(**names: str) -> list[TaskHead]:
    """Lists the classes that read a row's last token, by the models they are of."""
    return [
        TaskHead(
            f"{name}ForSequenceClassification",
            SCORE,
            summary="none",
            pool="last",
            bias=False,
            model_type=model_type.replace("_", "-"),
        )
        for model_type, name in names.items()
    ]


HEADS: Heads = {
    **dict.fromkeys(("class", "number"), list_row_classes(gpt2="GPT2", openai_gpt="OpenAIGPT")),
    **list_token_heads("GPT2", dropout="classifier_dropout", model_type="gpt2"),
}
