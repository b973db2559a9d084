"""Heads of tasks on the states: structured outputs and their losses."""

from typing import Any


def choose_summary(backbone: Any, has_backbone_states: bool = True) -> str:
    """Chooses the usual summary of a row, by what reads it.

    Args:
        has_backbone_states: the states are the backbone's; False: of a network above it.
    """
    if not has_backbone_states:
        return "none"
    if getattr(backbone, "pooler", False):
        return "pooler"
    # BERT's pooler is pretrained, XLNet's layer is the task's, GPT's state is read as it is.
    return "tanh" if getattr(backbone, "attention", "") == "bi" else "none"
