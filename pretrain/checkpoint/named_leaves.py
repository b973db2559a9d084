"""Names the leaves of a train state by their paths, as a checkpoint does."""

from typing import Any

import jax
from flax import traverse_util

Leaves = dict[str, Any]  # "params/backbone/token_VD": an array, or the description of one


def flatten(tree: Any) -> Leaves:
    """Returns {"params/backbone/token_VD": leaf}, in the order of `jax.tree.leaves`."""
    # `keystr` gives fields of classes and keys of dictionaries the same form.
    named = jax.tree_util.tree_leaves_with_path(tree)
    return {jax.tree_util.keystr(path, simple=True, separator="/"): leaf for path, leaf in named}


def nest(leaves: Leaves) -> dict:
    """Returns {"params": {"backbone": {"token_VD": leaf}}}, the form that Orbax stores."""
    return traverse_util.unflatten_dict(leaves, sep="/")
