"""The memory with which a row goes on where its last batch ended, as a collection of the state."""

from flax import linen as nn


def open_memory(objective: nn.Module, B: int) -> nn.Variable:
    """Makes or reads the variable of B rows' memory, within a compact method of an objective."""
    # Checkpoints have it under this name, whatever the memory is of.
    return objective.variable("state", "lstm", objective.backbone.initial_memory, B)


def save_memory(objective: nn.Module, variable: nn.Variable | None, new) -> None:
    """Keeps the memory behind a batch; None: nothing is carried."""
    # `init` must leave zeros there, and evaluation reads states without changing them.
    if variable and not objective.is_initializing() and objective.is_mutable_collection("state"):
        variable.value = new
